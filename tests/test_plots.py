"""Figures: what is on which axis, and that the numbers are there in words too."""

from __future__ import annotations

import io

import matplotlib as mpl
import pytest
from made_up import classification, curves, everything, generation, row, runs
from PIL import Image

from mlmclm import plots

ARMS = ["mlm", "clm"]


@pytest.fixture
def drawn(monkeypatch):
    """Collect the figures before they become bytes."""
    figures = []
    png = plots._png
    monkeypatch.setattr(plots, "_png", lambda figure: figures.append(figure) or png(figure))
    return figures


def test_every_plot_is_a_png_of_150_dpi_with_words_and_numbers():
    before = dict(mpl.rcParams)
    found = plots.all_plots(everything(), curves())
    assert [plot.name for plot in found] == ["learning-curves", "accuracy", "generation-time"]
    for plot in found:
        image = Image.open(io.BytesIO(plot.png))
        assert image.format == "PNG"
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
        assert plot.alt.endswith(".")
        assert plot.table.lines
    assert dict(mpl.rcParams) == before


def test_two_kinds_of_loss_never_share_a_panel(drawn):
    plots.learning_curves(everything(), curves(), ARMS)
    panels = [panel for panel in drawn[0].axes if panel.get_visible()]
    assert [panel.get_title() for panel in panels] == [
        "masked-token loss",
        "negative log-likelihood",
    ]
    assert [panel.get_legend_handles_labels()[1] for panel in panels] == [["mlm"], ["clm"]]


def test_two_methods_never_share_a_panel_nor_their_floors(drawn):
    points = [point for point in curves() if point.arm == "mlm"]
    high = [
        point.model_copy(update={"arm": "high", "method": "rate 0.4, blocks of 128"})
        for point in points
    ]
    rows = [
        row(arm, metric="masked-token loss", unit="nats/target", method=method, value=value,
            role="baseline", baseline="context-free")
        for arm, method, value in (("mlm", "15% masked", 6.0), ("high", "40% masked", 7.0))
    ]  # fmt: skip
    plots.learning_curves(rows, points + high, ["mlm", "high"])
    low_panel, high_panel = drawn[0].axes
    assert low_panel.get_title() == "masked-token loss, blocks of 128"
    assert high_panel.get_title() == "masked-token loss, rate 0.4, blocks of 128"
    assert [text.get_text() for text in low_panel.texts] == ["context-free\n6"]
    assert [text.get_text() for text in high_panel.texts] == ["context-free\n7"]
    assert "15% masked" in low_panel.get_xlabel()


def test_many_curves_are_named_below_and_not_on_top_of_the_curves(drawn):
    points = [
        point.model_copy(update={"arm": f"{point.arm}-{number}"})
        for point in curves()
        for number in range(8)
    ]
    plots.learning_curves([], points, list(dict.fromkeys(point.arm for point in points)))
    (legend,) = drawn[0].legends
    assert len(legend.get_texts()) == 16
    assert all(panel.get_legend() is None for panel in drawn[0].axes)


def test_curves_are_means_over_seeds_and_floors_are_those_of_the_same_metric(drawn):
    plots.learning_curves(everything(), curves(), ARMS)
    masked, causal = drawn[0].axes
    (line,) = (line for line in causal.lines if line.get_label() == "clm")
    last = [point.loss for point in curves() if point.arm == "clm" and point.step == 1200]
    assert line.get_ydata()[-1] == pytest.approx(sum(last) / 3)
    assert line.get_xdata()[-1] == 1200 * 8192
    floors = {text.get_text().split("\n")[0] for text in masked.texts}
    assert floors == {"uniform", "unigram", "context-free"}


def test_steps_that_a_seed_never_reached_are_left_out(drawn):
    points = [point for point in curves() if point.arm == "clm"]
    plots.learning_curves([], [each for each in points if each.seed or each.step < 600], ARMS)
    assert drawn[0].axes[0].lines[0].get_xdata()[-1] == 500 * 8192


def test_accuracy_has_a_panel_per_method_and_intervals(drawn):
    plot = plots.accuracy(classification(), ARMS)
    titles = [panel.get_title() for panel in drawn[0].axes]
    assert titles == ["fine-tuning, mean pooling", "linear probe, mean pooling"]
    (legend,) = drawn[0].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sorted(labels) == sorted(column.label for column in plot.table.columns)
    bars = [each for each in drawn[0].axes[0].containers if each.has_yerr]
    assert len(bars) == 3 * 4


def test_generation_time_is_drawn_on_logarithmic_axes_as_median_and_range(drawn):
    rows = runs("clm", (1.0, 2.0, 9.0), metric="generation time", unit="s",
                method="left to right, 8 new tokens", details={"new_tokens": 8})  # fmt: skip
    plot = plots.generation_time(rows, ["clm"])
    (panel,) = drawn[0].axes
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
    assert plot.table.lines[0].cells[0].text == "2 (1 to 9)"
    assert plot.table.columns[0].label == "clm: left to right (s)"


def test_one_way_of_decoding_is_one_line_over_all_lengths(drawn):
    plots.generation_time(generation(), ARMS)
    labels = drawn[0].axes[0].get_legend_handles_labels()[1]
    assert labels == ["mlm: Mask-Predict, 10 passes", "clm: left to right, KV cache"]


def test_nothing_to_draw_gives_no_plot():
    assert plots.all_plots([row()], []) == []


def test_no_two_of_many_arms_look_the_same():
    arms = [str(index) for index in range(49)]
    assert len({plots._look(arm, arms) for arm in arms}) == 49


def test_one_arm_is_one_line_even_where_prompt_and_length_are_the_same_number():
    rows = [
        row(
            metric="generation time", unit="s", method=f"prompt 32, new {length}, greedy",
            details={"new_tokens": length, "decoder": "KV cache"}, value=length / 100,
        )
        for length in (16, 32, 64)
    ]  # fmt: skip
    (line,) = plots.generation_time(rows, ["clm"]).table.columns
    assert line.label == "clm: KV cache; prompt 32, greedy (s)"
