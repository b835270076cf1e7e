"""The queries of Nexmark as pipelines of YAML, without Python, and as the text for DuckDB that
judges them.
"""

from __future__ import annotations

from bench.nexmark.query import Query

_US = "* 1000"  # of ms
_STATISTICS = """
  bids: count
  low: {count: {where: "price < 10000"}}
  middle: {count: {where: "price >= 10000 and price < 1000000"}}
  high: {count: {where: "price >= 1000000"}}
  bidders: {count_distinct: bidder}
  low_bidders: {count_distinct: bidder, where: "price < 10000"}
  auctions: {count_distinct: auction}
  high_auctions: {count_distinct: auction, where: "price >= 1000000"}"""
_STATISTICS_SQL = """count(*), count(*) filter (price < 10000),
  count(*) filter (price >= 10000 and price < 1000000), count(*) filter (price >= 1000000),
  count(distinct bidder), count(distinct bidder) filter (price < 10000),
  count(distinct auction), count(distinct auction) filter (price >= 1000000)"""
_STATISTICS_COLUMNS = (
    "bids",
    "low",
    "middle",
    "high",
    "bidders",
    "low_bidders",
    "auctions",
    "high_auctions",
)
_DAY = "date_format(time_of(dateTime, 'ms'), '%Y-%m-%d')"
_MINUTE = "date_format(time_of(dateTime, 'ms'), '%H:%M')"
_MINUTE_SQL = "strftime(make_timestamp(dateTime * 1000), '%H:%M')"
_DAY_SQL = "strftime(make_timestamp(dateTime * 1000), '%Y-%m-%d')"

_OFFERS = """
sold:
  input: auctions
  map: {id: id, category: category, expires: "time_of(expires, 'ms')"}
  output: sold
bid:
  input: bids
  map: {auction: auction, bidder: bidder, price: price, at: dateTime}
  output: bid
offers:
  input: {sold: {key: id}, bid: {key: auction}}
  join: {kind: inner, within: {until: sold.expires}}
  output: offers"""
_SELLERS_OFFERS = _OFFERS.replace("category: category", "seller: seller, starts: dateTime")
_OFFERS_SQL = """from auction join bid
  on auction = id and bid.dateTime between auction.dateTime and expires"""
_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
_AUCTION = (
    "itemName",
    "description",
    "initialBid",
    "reserve",
    "dateTime",
    "expires",
    "seller",
    "category",
    "extra",
)

QUERIES = {
    "q0": Query(
        "each bid, as it is",
        """
q0:
  input: bids
  map: {auction: auction, bidder: bidder, price: price, dateTime: dateTime, extra: extra}
  output: rows""",
        "select auction, bidder, price, dateTime, extra from bid",
        ("auction", "bidder", "price", "dateTime", "extra"),
    ),
    "q1": Query(
        "prices in another currency",
        """
q1:
  input: bids
  map: {auction: auction, bidder: bidder, price: 0.908 * price, dateTime: dateTime, extra: extra}
  output: rows""",
        "select auction, bidder, 0.908::double * price, dateTime, extra from bid",
        ("auction", "bidder", "price", "dateTime", "extra"),
    ),
    "q2": Query(
        "bids for some auctions",
        """
q2:
  input: bids
  steps:
    - filter: auction % 123 == 0
    - map: {auction: auction, price: price}
  output: rows""",
        "select auction, price from bid where auction % 123 = 0",
        ("auction", "price"),
    ),
    "q3": Query(
        "who sells in three states, of one category",
        """
chosen:
  input: auctions
  steps:
    - filter: category == 10
    - map: {id: id, seller: seller}
  output: chosen
local:
  input: persons
  steps:
    - filter: state == 'OR' or state == 'ID' or state == 'CA'
    - map: {id: id, name: name, city: city, state: state}
  output: local
q3:
  input: {chosen: {key: seller}, local: {key: id}}
  join: inner
  output: rows""",
        """select name, city, state, auction.id from auction join person on seller = person.id
  where category = 10 and state in ('OR', 'ID', 'CA')""",
        ("local.name", "local.city", "local.state", "chosen.id"),
        ("auction", "person"),
    ),
    "q4": Query(
        "the mean of the final prices of each category, as it changes",
        f"""{_OFFERS}
finals:
  input: {{offers: {{key: {{id: id, category: sold.category}}}}}}
  aggregate: {{final: {{max: bid.price}}}}
  output: finals
q4:
  input: {{finals: {{key: category}}}}
  accumulation: accumulating
  aggregate: {{auctions: count, total: {{sum: final}}, mean: {{mean: final}}}}
  output: rows""",
        f"""select category, count(*), sum(final)::bigint, sum(final)::double / count(*)
  from (select id, category, max(price) as final {_OFFERS_SQL} group by all) group by category""",
        ("category", "auctions", "total", "mean"),
        ("auction", "bid"),
        key=("category",),
        newest="total",
    ),
    "q5": Query(
        "the auctions with most bids in the last ten seconds",
        """
counts:
  input: {bids: {key: auction}}
  window: {sliding: 10s, every: 2s}
  aggregate: {num: count}
  output: counted
most:
  input: {counted: {key: all}}
  window: {of: input}
  aggregate: {num: {max: num}}
  output: most
hot:
  input: {counted: {key: num}, most: {key: num}}
  window: {of: input}
  join: inner
  output: rows""",
        f"""with slid as (
    select auction, dateTime // 2000 * 2000 + 2000 * step as last, count(*) as num
    from bid, range(1, 6) as steps(step) group by all)
  select auction, num, last {_US} from slid
  qualify num = max(num) over (partition by last)""",
        ("counted.auction", "counted.num", "window_end"),
    ),
    "q6": Query(
        "the mean price of the last ten auctions of each seller, as each one closes",
        f"""{_SELLERS_OFFERS}
priced:
  input: offers
  map:
    id: id
    seller: sold.seller
    price: bid.price
    window_start: time_of(sold.starts, 'ms')
    window_end: sold.expires + 1
  output: priced
finals:
  input: {{priced: {{key: [id, seller]}}}}
  window: {{of: input}}
  aggregate: {{final: {{max: price}}}}
  output: finals
q6:
  input: {{finals: {{key: seller}}}}
  over: {{rows: 10}}
  aggregate: {{auctions: count, mean: {{mean: final}}}}
  output: rows""",
        f"""select seller, id, final, count(*) over last,
    sum(final) over last::double / count(*) over last
  from (select id, seller, expires, max(price) as final {_OFFERS_SQL} group by all)
  window last as (partition by seller order by expires, final, id
    rows between 9 preceding and current row)""",
        ("seller", "id", "final", "auctions", "mean"),
        ("auction", "bid"),
    ),
    "q7": Query(
        "the highest bids of each ten seconds",
        """
highest:
  input: {bids: {key: all}}
  window: {tumbling: 10s}
  aggregate: {price: {max: price}}
  output: highest
best:
  input: {bids: {key: price}, highest: {key: price}}
  window: {tumbling: 10s}
  join: inner
  output: rows""",
        """select auction, price, bidder from bid
  qualify price = max(price) over (partition by dateTime // 10000)""",
        ("bids.auction", "bids.price", "bids.bidder"),
    ),
    "q8": Query(
        "who sells within ten seconds of having come",
        """
came:
  input: {persons: {key: [id, name]}}
  window: {tumbling: 10s}
  aggregate: {times: count}
  output: came
sold:
  input: {auctions: {key: seller}}
  window: {tumbling: 10s}
  aggregate: {times: count}
  output: sold
new:
  input: {came: {key: id}, sold: {key: seller}}
  window: {tumbling: 10s}
  join: inner
  output: rows""",
        f"""select distinct person.id, name, person.dateTime // 10000 * 10000 {_US}
  from person join auction
  on person.id = seller and person.dateTime // 10000 = auction.dateTime // 10000""",
        ("came.id", "came.name", "came.window_start"),
        ("person", "auction"),
    ),
    "q9": Query(
        "the winning bid of each auction, as it changes",
        f"""{_OFFERS}
q9:
  input: {{offers: {{key: id}}}}
  aggregate: {{bids: count, top: {{top_rows: [bid.price desc, bid.at], k: 1}}}}
  output: rows""",
        f"""select id, count(*), list(price order by price desc, bid.dateTime)[1:1],
    list(bid.dateTime order by price desc, bid.dateTime)[1:1] {_OFFERS_SQL} group by id""",
        ("id", "bids", "top.bid.price", "top.bid.at"),
        ("auction", "bid"),
        key=("id",),
        newest="bids",
    ),
    "q10": Query(
        "bids in folders by day and minute",
        f"""
q10:
  input: bids
  map:
    auction: auction
    bidder: bidder
    price: price
    dateTime: dateTime
    extra: extra
    dt: {_DAY}
    hm: {_MINUTE}
  output: rows""",
        f"select auction, bidder, price, dateTime, extra, {_DAY_SQL}, {_MINUTE_SQL} from bid",
        ("auction", "bidder", "price", "dateTime", "extra", "dt", "hm"),
        folders=("dt", "hm"),
    ),
    "q11": Query(
        "bids of each session of a bidder",
        """
q11:
  input: {bids: {key: bidder}}
  window: {session: 10s}
  aggregate: {num: count}
  output: rows""",
        f"""with parted as (
    select *, dateTime - lag(dateTime) over (partition by bidder order by dateTime) as gap
    from bid),
  numbered as (
    select *, count(*) filter (gap >= 10000)
      over (partition by bidder order by dateTime range unbounded preceding) as session
    from parted)
  select bidder, count(*), min(dateTime) {_US} from numbered group by bidder, session""",
        ("bidder", "num", "window_start"),
    ),
    "q12": Query(
        "bids of a bidder in ten seconds of arrival",
        """
q12:
  input: {bids: {key: bidder}}
  window: {tumbling: 10s}
  aggregate: {num: count}
  output: rows""",
        "select bidder, count(*) from bid group by bidder",
        ("bidder", "num"),
        added="num",
        arrival=True,
    ),
    "q13": Query(
        "bids with a row of a table that ends",
        """
q13:
  input: {bids: {key: {rest: "mod(auction, 10000)"}}, sides: {key: key}}
  enrich: {with: sides, as: side, missing: drop, broadcast: true}
  output: rows""",
        """select auction, bidder, price, dateTime, value
  from bid join side on auction % 10000 = key""",
        ("auction", "bidder", "price", "dateTime", "side.value"),
        ("bid", "side"),
    ),
    "q14": Query(
        "dear bids, with the time of day and how many c are in them",
        """
q14:
  input: bids
  steps:
    - filter: 0.908 * price > 1000000 and 0.908 * price < 50000000
    - map:
        auction: auction
        bidder: bidder
        price: 0.908 * price
        time: >-
          case(between(hour(time_of(dateTime, 'ms')), 8, 18), 'dayTime',
               hour(time_of(dateTime, 'ms')) <= 6 or hour(time_of(dateTime, 'ms')) >= 20,
               'nightTime', 'otherTime')
        dateTime: dateTime
        extra: extra
        c: length(extra) - length(replace(extra, 'c', ''))
  output: rows""",
        """select auction, bidder, 0.908::double * price,
    case when hour(make_timestamp(dateTime * 1000)) between 8 and 18 then 'dayTime'
      when hour(make_timestamp(dateTime * 1000)) <= 6
        or hour(make_timestamp(dateTime * 1000)) >= 20 then 'nightTime'
      else 'otherTime' end,
    dateTime, extra, length(extra) - length(replace(extra, 'c', ''))
  from bid where 0.908::double * price > 1000000 and 0.908::double * price < 50000000""",
        ("auction", "bidder", "price", "time", "dateTime", "extra", "c"),
    ),
    "q15": Query(
        "statistics of each day, as they change",
        f"""
q15:
  input: {{bids: {{key: {{day: "{_DAY}"}}}}}}
  aggregate:{_STATISTICS.replace(chr(10), chr(10) + "  ")}
  output: rows""",
        f"select {_DAY_SQL}, {_STATISTICS_SQL} from bid group by 1",
        ("day", *_STATISTICS_COLUMNS),
        key=("day",),
        newest="bids",
    ),
    "q16": Query(
        "statistics of each channel and day, as they change",
        f"""
q16:
  input: {{bids: {{key: {{channel: channel, day: "{_DAY}"}}}}}}
  aggregate:{_STATISTICS.replace(chr(10), chr(10) + "  ")}
  output: rows""",
        f"select channel, {_DAY_SQL}, {_STATISTICS_SQL} from bid group by 1, 2",
        ("channel", "day", *_STATISTICS_COLUMNS),
        key=("channel", "day"),
        newest="bids",
    ),
    "q17": Query(
        "statistics of each auction and day, as they change",
        f"""
q17:
  input: {{bids: {{key: {{auction: auction, day: "{_DAY}"}}}}}}
  aggregate:
    bids: count
    low: {{count: {{where: "price < 10000"}}}}
    middle: {{count: {{where: "price >= 10000 and price < 1000000"}}}}
    high: {{count: {{where: "price >= 1000000"}}}}
    least: {{min: price}}
    most: {{max: price}}
    mean: {{mean: price}}
    total: {{sum: price}}
  output: rows""",
        f"""select auction, {_DAY_SQL}, count(*), count(*) filter (price < 10000),
    count(*) filter (price >= 10000 and price < 1000000), count(*) filter (price >= 1000000),
    min(price), max(price), sum(price)::double / count(*), sum(price)::bigint
  from bid group by 1, 2""",
        ("auction", "day", "bids", "low", "middle", "high", "least", "most", "mean", "total"),
        key=("auction", "day"),
        newest="bids",
    ),
    "q18": Query(
        "the last bid of each bidder for each auction, as it changes",
        """
q18:
  input: {bids: {key: [bidder, auction]}}
  deduplicate: {keep: last}
  output: rows""",
        """select auction, bidder, max(dateTime) from bid group by 1, 2""",
        ("auction", "bidder", "dateTime"),
        marked=True,
    ),
    "q19": Query(
        "the ten highest bids of each auction, as they change",
        """
q19:
  input: {bids: {key: auction}}
  top: {by: [price desc, dateTime], k: 10, rank: place}
  output: rows""",
        """select auction, price, dateTime,
    row_number() over (partition by auction order by price desc, dateTime) as place
  from bid qualify place <= 10""",
        ("auction", "price", "dateTime", "place"),
        marked=True,
    ),
    "q20": Query(
        "bids with their auctions, of one category",
        """
chosen:
  input: auctions
  filter: category == 10
  output: chosen
q20:
  input: {bids: {key: auction}, chosen: {key: id}}
  join: inner
  output: rows""",
        """select auction, bidder, price, channel, url, bid.dateTime, bid.extra, itemName,
    description, initialBid, reserve, auction.dateTime, expires, seller, category, auction.extra
  from bid join auction on auction = id where category = 10""",
        (
            *(f"bids.{each}" for each in _BID),
            *(f"chosen.{each}" for each in _AUCTION),
        ),
        ("bid", "auction"),
    ),
    "q21": Query(
        "the id of each bid's channel",
        r"""
q21:
  input: bids
  steps:
    - map:
        auction: auction
        bidder: bidder
        price: price
        channel: channel
        channel_id: >-
          case(lower(channel) == 'apple', '0', lower(channel) == 'google', '1',
               lower(channel) == 'facebook', '2', lower(channel) == 'baidu', '3',
               regexp_extract(url, '(?:&|^)channel_id=([^&]*)'))
    - filter: channel_id != None
  output: rows""",
        r"""select auction, bidder, price, channel,
    case lower(channel) when 'apple' then '0' when 'google' then '1' when 'facebook' then '2'
      when 'baidu' then '3' else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end as id
  from bid where id is not null""",
        ("auction", "bidder", "price", "channel", "channel_id"),
    ),
    "q22": Query(
        "the folders of each bid's address",
        """
q22:
  input: bids
  map:
    auction: auction
    bidder: bidder
    price: price
    channel: channel
    dir1: part(url, '/', 3)
    dir2: part(url, '/', 4)
    dir3: part(url, '/', 5)
  output: rows""",
        """select auction, bidder, price, channel, split_part(url, '/', 4),
    split_part(url, '/', 5), split_part(url, '/', 6) from bid""",
        ("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3"),
    ),
    "q23": Query(
        "bids with their auctions and who sells there",
        """
sold:
  input: {auctions: {key: seller}, persons: {key: id}}
  join: inner
  output: sold
offers:
  input: sold
  map: {id: auctions.id, item: auctions.itemName, name: persons.name}
  output: offers
q23:
  input: {bids: {key: auction}, offers: {key: id}}
  join: inner
  output: rows""",
        """select auction, price, itemName, name from bid join auction on auction = auction.id
  join person on seller = person.id""",
        ("bids.auction", "bids.price", "offers.item", "offers.name"),
        ("bid", "auction", "person"),
    ),
}
