from millwheel.core.windowing.contract import Effects, RejectedRecord
from millwheel.core.windows.panes import Retraction
from millwheel.workers.bundle.key_records import KeyRecords


def test_refused_records_get_the_stream_by_which_they_came() -> None:
    given = KeyRecords()
    one, other = {"n": 1}, {"n": None}
    given.records += [(one, 5), (other, 5), (Retraction({"n": 3}), 6)]
    given.streams += ["hits", "clicks", "orders"]
    effects = Effects()
    effects.rejected += [
        RejectedRecord("k", other, 5, "no number"),
        RejectedRecord("k", Retraction({"n": 3}), 6, "not held"),
    ]
    given.name_streams(effects)
    assert [bad.stream for bad in effects.rejected] == ["clicks", "orders"]


def test_a_record_that_did_not_come_has_no_stream() -> None:
    given = KeyRecords()
    given.records.append(({"n": 1}, 5))
    given.streams.append("hits")
    effects = Effects()
    effects.rejected.append(RejectedRecord("k", {"n": 1}, 7, "of another time"))
    given.name_streams(effects)
    assert [bad.stream for bad in effects.rejected] == [""]
