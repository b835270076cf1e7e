"""Deliberate mistakes that this search must catch, each ``within`` some seeds from ``first`` on."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from millwheel.connect.array_functions import ArrayFunction
from millwheel.core.aggregates.candidates import RowCandidates
from millwheel.core.columns import arrays
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.stateless import lists, results, stages, tables
from millwheel.core.columns.stateless.plans import _Draft
from millwheel.core.columns.stateless.stages import ColumnStep
from millwheel.core.columns.stateless.tables import TableColumns
from millwheel.core.expressions.families import decimals, numbers, times
from millwheel.core.expressions.scope import Scope, _filled
from millwheel.core.expressions.terms import exact_of
from millwheel.core.instants.decimals import DecimalForm
from millwheel.core.lazy_polars import pl
from millwheel.core.rows import lookback_columns
from millwheel.core.rows.kept_records import AT
from millwheel.core.rows.lookback_columns import LookbackColumns
from millwheel.core.rows.ranking import Ranking
from millwheel.engine.workers.delivery import beside
from millwheel.engine.workers.operators.windows.row_keys import KeysInRows
from tests.search.mistakes import Context, SeededMistakes, replaced

MISTAKES = SeededMistakes()
mistake = MISTAKES.enlist


@mistake(within=5, first=189)
def results_go_on_in_columns_unseen() -> Any:
    """Only sources look for nulls: the results of a computation are taken as they are."""
    right = ColumnPlan._check_kinds

    def wrong(self: ColumnPlan, batch: Any) -> None:
        if batch.stream in ("one", "two"):
            right(self, batch)

    stack = ExitStack()
    stack.enter_context(replaced(ColumnPlan, "_check_kinds", wrong))
    stack.enter_context(replaced(ColumnPlan, "divide", lambda self, batch: (batch, None)))
    return stack


@mistake(within=60, first=8)
def windows_behind_global_wrap() -> Context:
    """The bounds of windows around the last instant are computed in 64 bits."""
    return replaced(arrays, "_any_far", lambda function, timestamps: False)


@mistake(within=60)
def a_key_apart_comes_back_at_once() -> Context:
    """The keys whose windows went on in rows are forgotten, so columns begin the same windows
    anew."""
    return replaced(KeysInRows, "add", lambda self, keys: None)


@mistake(within=40, first=6)
def steps_go_on_with_what_does_not_fit() -> Context:
    """Columns have the result of a step also where it is null, or does not fit 64 bits."""

    def wrong(self: ColumnStep, frame: Any) -> Any:
        return np.ones(frame.height, np.bool_)

    return replaced(ColumnStep, "fitting", wrong)


@mistake(within=3, first=115)
def a_field_of_a_record_that_is_missing_is_null() -> Context:
    """A join without a partner has no record there, of which a step reads a field: that is no
    null that it could pass on."""
    return replaced(_Draft, "within", lambda self, same: ())


@mistake(within=3, first=252)
def fields_in_another_order_are_taken_for_alike() -> Context:
    """Records that are passed on get the order of the first of their read."""
    return replaced(beside, "_fields_of", lambda values, declared: list(values[0]))


@mistake(within=3, first=26)
def columns_do_not_ask_whether_a_result_is_left_out() -> Context:
    """``having`` is for results in rows alone."""

    def wrong(spec: Any, fields: Any, compile_expression: Any) -> Any:
        return right(replace(spec, work=replace(spec.work, having="")), fields, compile_expression)

    right = results.result_plan  # type: ignore[attr-defined]
    return replaced(results, "result_plan", wrong)


@mistake(within=4, first=231)
def what_an_array_function_refuses_is_null() -> Context:
    """Columns take the null in place of a value that is not known for a value."""

    def wrong(self: ArrayFunction, arrays: Any, count: int) -> Any:
        values, known = right(self, arrays, count)
        return values, np.ones_like(known)

    right = ArrayFunction._computed
    return replaced(ArrayFunction, "_computed", wrong)


@mistake(within=3, first=45)
def a_value_that_stands_for_null_is_taken() -> Context:
    """What is computed in place of null, so that nothing fails, becomes the result."""

    def wrong(self: Scope, terms: Any, make: Any) -> Any:
        made = make([_filled(each) for each in terms])
        return replace(made, exact=(*exact_of(terms), *made.exact))

    return replaced(Scope, "strict", wrong)


@mistake(within=40, first=35)
def texts_of_times_lose_their_fraction_in_columns() -> Context:
    """The fast way to many times reads whole seconds only."""

    def wrong(texts: Any) -> Any:
        found = right(texts)
        return None if found is None else found // 1_000_000 * 1_000_000

    right = times.texts_us  # type: ignore[attr-defined]
    return replaced(times, "texts_us", wrong)


@mistake(within=2, first=317)
def a_half_of_a_unit_is_rounded_up_in_columns() -> Context:
    """Not to the even neighbour."""
    return replaced(numbers, "_to_even", lambda given, unit: (given + unit // 2) // unit * unit)


@mistake(within=2, first=98)
def texts_of_decimals_lose_zeros_in_columns() -> Context:
    """Those behind the point."""

    def wrong(numbers: Any, digits: int) -> Any:
        return [text.rstrip("0") if digits else text for text in right(numbers, digits)]

    right = decimals._decimal_texts
    return replaced(decimals, "_decimal_texts", wrong)


@mistake(within=13, first=280)
def what_becomes_a_decimal_is_cut_in_columns() -> Context:
    """Towards 0, not to the nearest."""

    def wrong(form: DecimalForm, values: Any) -> Any:
        finer = replace(form, precision=18, scale=form.scale + 1)
        return right(finer, values) // 10

    right = decimals._column_units
    return replaced(decimals, "_column_units", wrong)


@mistake(within=3, first=60)
def rows_of_other_types_are_cast() -> Context:
    """The first value of a field says what all others become."""

    def wrong(values: Any) -> str:
        given = [type(value) for value in values if value is not None]
        return {int: "int", float: "float", str: "str"}.get(given[0] if given else str, "")

    return replaced(tables, "_kind_of", wrong)


@mistake(within=5, first=8)
def a_record_without_a_row_gets_the_first() -> Context:
    """A position that is not there is taken for 0."""
    right = TableColumns.positions
    return replaced(TableColumns, "positions", lambda self, keys: right(self, keys).fill_null(0))


@mistake(within=83, first=11)
def records_that_columns_cannot_tell_apart_are_as_they_came() -> Context:
    """Of those of one time that the orders put level, columns choose the first that came."""

    def wrong(self: RowCandidates) -> Any:
        packed = pl.col(self._column).drop_nulls()
        return [packed.sort().head(self._aggregator.k).alias(self._column)]

    return replaced(RowCandidates, "grouped", wrong)


@mistake(within=83, first=11)
def columns_choose_rows_by_their_orders_alone() -> Context:
    """The first and the last record of a bundle are any of its records; and of those that the
    orders put level all come, whatever their times, or as many as there are to be."""

    def wrong(self: RowCandidates) -> Any:
        number = pl.col(self._column).drop_nulls()
        return [number.head(self._aggregator.k).alias(self._column)]

    return replaced(RowCandidates, "grouped", wrong)


@mistake(within=32, first=163)
def what_columns_choose_is_all_that_is_kept() -> Context:
    """The first rows of a bundle take the place of those that were kept before."""
    return replaced(Ranking, "with_entries", lambda self, kept, entries: [*entries])


@mistake(within=1, first=440)
def look_backs_take_records_of_one_time_as_they_came() -> Context:
    """Columns do not look at what they contain."""

    def wrong(self: LookbackColumns, whole: Any, codes: Any) -> Any:
        return np.lexsort([whole[AT].to_numpy(), codes])

    return replaced(LookbackColumns, "_in_order", wrong)


@mistake(within=1, first=814)
def a_look_back_that_has_no_number_has_the_least() -> Context:
    """Where all records are left out of an extreme, it is not null."""
    right = lookback_columns._extremes

    def wrong(column: Any, *given: Any) -> Any:
        return right(column, *given).fill_null(column.min())

    return replaced(lookback_columns, "_extremes", wrong)


@mistake(within=1, first=69)
def entries_are_of_the_records_in_turn() -> Context:
    """The entries of all lists are given to the records one by one, so they have the keys and times
    of others."""
    right = stages._each_entry

    def wrong(frame: Any, indexes: Any, name: str, lists: Any) -> Any:
        made, _ = right(frame, indexes, name, lists)
        return made, np.sort(np.resize(indexes, made.height))

    return replaced(stages, "_each_entry", wrong)


@mistake(within=1, first=69)
def columns_leave_out_parts_without_text() -> Context:
    """What lies between two separators that follow each other is not a part in columns."""
    right = lists._parts

    def wrong(*given: Any) -> Any:
        term, part = right(*given), pl.element()
        return replace(term, column=term.column.list.eval(part.filter(part != "")))

    return replaced(lists, "_parts", wrong)
