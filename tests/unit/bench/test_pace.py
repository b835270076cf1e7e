from bench.pace import quiet_rounds


def test_a_round_counts_if_others_were_quiet_in_each_of_its_runs() -> None:
    greedy, balanced = [0.1, 0.1, 0.9, 0.3], [0.2, 0.5, 0.1, 0.3]
    assert quiet_rounds([greedy, balanced], 0.3) == [0, 3]
    assert quiet_rounds([greedy, balanced], 0.05) == []
