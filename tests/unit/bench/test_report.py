import xml.etree.ElementTree as ElementTree

import pytest
from msgspec import structs

from bench.figures import Figure, latest_campaign, read
from bench.parts import PARTS
from bench.paths import RESULTS
from bench.plots import bars
from bench.report import PAGE, peers, place, section, with_tables
from bench.stats import spread


def test_a_part_replaces_its_own_place_and_nothing_else() -> None:
    page = (
        "before\n<!-- bench:A -->\nold\n<!-- /bench:A -->\nbetween\n<!-- bench:B -->\nkept\n<!--"
        " /bench:B -->\n"
    )
    filled = place(page, "A", r"new \1")
    assert filled == page.replace("\nold\n", "\nnew \\1\n")
    assert place(filled, "A", r"new \1") == filled


def test_a_page_without_a_place_for_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for part C"):
        place("nothing here", "C", "text")


def test_a_plot_is_an_svg_with_a_bar_for_each_row_in_proportion() -> None:
    svg = ElementTree.fromstring(
        bars("A & B", [("millwheel", spread([4.0])), ("other <1>", spread([1.0, 2.0, 3.0]))])
    )
    widths = [float(bar.attrib["width"]) for bar in svg.iter("{http://www.w3.org/2000/svg}rect")][
        1:
    ]
    assert widths[0] / widths[1] == pytest.approx(2.0, rel=0.01)


def figure(part: str, variant: str, metrics: dict[str, float]) -> Figure:
    return Figure(
        part=part, contestant="millwheel", variant=variant, run=0, campaign="s", at="2026-01-01",
        settings={},
        machine={}, metrics=metrics, correct=True,
    )  # fmt: skip


def test_a_bar_far_longer_than_the_others_is_cut_off_and_says_its_value() -> None:
    rows = [("millwheel", spread([4.0])), ("bytewax", spread([1.0])), ("flink", spread([5_000.0]))]
    svg = ElementTree.fromstring(bars("latency", rows))
    widths = [float(bar.get("width", "0")) for bar in svg.iter("{http://www.w3.org/2000/svg}rect")][
        1:
    ]
    assert widths[:2] == [400.0, 100.0]
    assert len(widths) == 5
    assert max(widths[2:]) < 400
    assert "5,000" in [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_what_has_other_figures_gets_a_table_of_its_own() -> None:
    shard = {"ids_per_s": 9.0, "asked_exactly_percent": 1.0, "filters_mb_per_million": 2.0}
    text = section(
        "H", [figure("H", "no ids", {"records_per_s": 5.0}), figure("H", "a shard", shard)]
    )
    rates, ids = text.split("\n\n")[1:]
    assert rates.splitlines()[::2] == ["| | records/s |", "| millwheel, no ids | 5 |"]
    assert ids.splitlines()[::2] == [
        "| | ids/s | asked exactly, % | filters, MB per million |",
        "| millwheel, a shard | 9 | 1 | 2 |",
    ]


def test_runs_are_a_column_only_where_their_number_differs() -> None:
    one, other = (figure("A", name, {"records_per_s": 5.0}) for name in ("jsonl", "parquet"))
    assert section("A", [one, one, other, other]).splitlines()[0].endswith(" Runs of each: 2.")
    uneven = section("A", [one, one, other])
    assert "Runs of each" not in uneven
    assert "| millwheel, jsonl | 2 | 5 |" in uneven
    assert "| millwheel, parquet | 1 | 5 |" in uneven
    wrong = structs.replace(other, correct=False)
    assert "| millwheel, parquet | 0 of 1 | no result |" in section("A", [wrong])


def test_the_price_of_strong_exactly_once_stands_below_the_latencies() -> None:
    text = section(
        "C",
        [
            figure("C", name, {"p50_ms": ms})
            for name, ms in (("strong", 6.0), ("at least once", 2.0))
        ],
    )
    assert "| millwheel, strong : at least once | 3 | no result |" in text
    assert text.endswith("| MillWheel's paper | 9.4 | 3.1 |")


def test_the_page_has_a_place_for_every_part() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in PARTS:
        place(page, name, "text")


def test_the_site_has_the_tables_of_the_figures() -> None:
    page = with_tables(PAGE.read_text(encoding="utf-8"))
    campaigns = {
        part: campaign for part in PARTS if (campaign := latest_campaign(list(read(RESULTS)), part))
    }
    assert [
        part
        for part, campaign in campaigns.items()
        if f"<!-- bench:{part} -->\n{section(part, campaign)}\n" not in page
    ] == []


def test_versions_of_the_peers_that_took_part_are_told() -> None:
    assert [package.split()[0] for package in peers({"millwheel", "bytewax, 2 processes",
    "flink, thread mode"})] == [
        "bytewax", "apache-flink",
    ]  # fmt: skip
    assert peers({"millwheel"}) == []
