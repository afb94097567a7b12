from r1zero.data.order import take


def test_each_pass_holds_every_problem_once_and_in_another_order() -> None:
    first, second = take(10, 0, 10, seed=1), take(10, 10, 10, seed=1)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_stream_is_the_same_wherever_it_is_cut() -> None:
    whole = take(7, 0, 40, seed=3)
    assert [i for start in range(0, 40, 4) for i in take(7, start, 4, seed=3)] == whole
    assert take(7, 0, 40, seed=4) != whole


def test_more_prompts_than_problems_go_round_again() -> None:
    assert sorted(take(3, 0, 6, seed=0)) == [0, 0, 1, 1, 2, 2]
