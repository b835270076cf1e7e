from bench.cluster import ClusterCosts, Size, measure, table


def test_every_shard_has_a_living_owner_after_a_death_and_every_watermark_rises() -> None:
    costs = measure(Size(workers=4, shards=24, nodes=3))  # it checks that itself
    assert (costs.workers, costs.shards) == (4, 24)
    assert costs.sent_mb > 0
    assert costs.largest_table_kb * 1e3 * 3 * 4 / 1e6 >= costs.sent_mb


def test_a_row_for_each_size() -> None:
    costs = ClusterCosts(10, 1_000, *(1.4,) * 10)
    assert len(table([costs, costs]).splitlines()) == 4
    assert "| 10 | 1,000 | 1 |" in table([costs])
