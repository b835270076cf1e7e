from millwheel.core.slices.merge_cache import MOST_BYTES, MergedSpans

SPAN, OTHER = (0, 10), (0, 20)


def test_what_is_kept_is_found_by_key_and_span_until_the_key_changes() -> None:
    spans = MergedSpans()
    assert not spans
    spans.keep(b"a", SPAN, ({"n": 1}, 5), 40)
    spans.keep(b"a", OTHER, ({"n": 2}, 5), 40)
    spans.keep(b"b", SPAN, ({"n": 3}, 6), 40)
    assert spans.get(b"a", SPAN) == ({"n": 1}, 5)
    spans.changed(b"a")
    assert spans.get(b"a", SPAN) is None
    assert spans.get(b"a", OTHER) is None
    assert spans.get(b"b", SPAN) == ({"n": 3}, 6)
    spans.clear()
    assert not spans


def test_large_results_are_not_kept() -> None:
    spans = MergedSpans()
    spans.keep(b"a", SPAN, ({"n": "x" * 10_000}, 5), 10_000)
    assert spans.get(b"a", SPAN) is None


def test_all_are_forgotten_beyond_the_bound() -> None:
    spans = MergedSpans()
    for number in range(MOST_BYTES // 400 + 100):
        key = number.to_bytes(8, "big")
        spans.keep(key, SPAN, ({"n": 1}, 5), 40)
        assert spans.get(key, SPAN) is not None
        if number % 2:
            spans.changed(key)
    assert 0 < len(spans) < MOST_BYTES // 400
    for number in range(MOST_BYTES // 400 + 100):
        spans.changed(number.to_bytes(8, "big"))
    assert (len(spans), spans._bytes) == (0, 0)
