"""Figures of questions and Q maps, for TensorBoard."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

SHOWN = 4
"""Number of frames shown of an unroll."""
CARD_INCHES = 3.4, 3.3
"""Size of a picture that TensorBoard shows as it is, at 100 dots per inch: its cards are some 350 pixels wide."""
DRAWN, MOST_COVER = 0.15, 0.6
"""Share of a frame's pixels whose saliency is drawn, and how much the strongest covers of the frame below it."""


def draw_questions(
    frames: Tensor, numbers: list[int], cumulant: Tensor, discount: Tensor, answer: Tensor, saliency: Tensor
) -> np.ndarray:
    """Image [H, W, 3]: for each question where its cumulant looks in some frames, and its cumulant and answer over time.

    Where it looks is where its saliency is highest in the frame.

    `frames` [T + 1, C, H, W]; `cumulant`, `discount`, `answer` [T + 1, n]; `saliency` [n, T + 1, H, W].
    """
    times = _evenly_spaced(len(frames), SHOWN)
    figure = Figure(figsize=(9.6, 2.0 * len(numbers)), dpi=100, layout="constrained")
    axes = figure.subplots(len(numbers), SHOWN + 1, squeeze=False, width_ratios=[*[1] * SHOWN, 1.5])
    for row, number in enumerate(numbers):
        for column, t in enumerate(times):
            _draw_saliency(axes[row, column], frames[t], saliency[row, t])
            if row == 0:
                axes[row, column].set_title(f"t = {t}", fontsize=11)
        axes[row, 0].set_ylabel(f"question {number}", fontsize=11)
        plot = axes[row, SHOWN]
        _draw_curves(plot, times, cumulant[:, row], answer[:, row])
        plot.set_title(f"discount {discount[:, row].mean():.3f}", fontsize=11)
    axes[0, SHOWN].legend(fontsize=9, frameon=False)
    axes[-1, SHOWN].set_xlabel("step of the unroll", fontsize=11)
    return _render(figure)


def draw_question(
    frames: Tensor, number: int, cumulant: Tensor, discount: Tensor, answer: Tensor, saliency: Tensor
) -> np.ndarray:
    """Image [H, W, 3] of one question, of the size of a card of TensorBoard: the first and the last frame, and the curves.

    `frames` [T + 1, C, H, W]; `cumulant`, `discount`, `answer` [T + 1]; `saliency` [T + 1, H, W].
    """
    times = _evenly_spaced(len(frames), 2)
    figure = Figure(figsize=CARD_INCHES, dpi=100, layout="constrained")
    axes = figure.subplot_mosaic([["first", "last"], ["curves", "curves"]], height_ratios=[1.6, 1])
    for name, t in zip(("first", "last"), times, strict=True):
        _draw_saliency(axes[name], frames[t], saliency[t])
        axes[name].set_xlabel(f"t = {t}", fontsize=9)
    _draw_curves(axes["curves"], times, cumulant, answer)
    axes["curves"].legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 0.95))
    figure.suptitle(f"question {number}, discount {discount.mean():.3f}", fontsize=10)
    return _render(figure)


def _draw_saliency(axis: Axes, frame: Tensor, saliency: Tensor) -> None:
    """The frame, and over it the share of pixels with the highest saliency."""
    axis.imshow(_picture(frame), cmap="gray", vmin=0, vmax=255)
    least = saliency.flatten().quantile(1 - DRAWN)
    heat = ((saliency - least) / (saliency.max() - least + 1e-12)).clamp(min=0).sqrt().cpu().numpy()
    axis.imshow(heat, cmap="autumn", alpha=MOST_COVER * heat, vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])


def _draw_curves(axis: Axes, times: list[int], cumulant: Tensor, answer: Tensor) -> None:
    axis.plot(cumulant.cpu(), color="tab:blue", label="cumulant")
    axis.plot(answer.cpu(), color="tab:orange", label="answer")
    axis.tick_params(labelsize=9)
    for t in times:
        axis.axvline(t, color="0.85", linewidth=0.6, zorder=0)


def draw_maps(frames: Tensor, maps: dict[str, Tensor]) -> np.ndarray:
    """Image [H, W, 3]: some of the frames [T, C, H, W] and below them a row for each of `maps` [T, h, w]."""
    times = _evenly_spaced(len(frames), SHOWN)
    figure = Figure(figsize=(8, 2.0 * (1 + len(maps))), dpi=100, layout="constrained")
    axes = figure.subplots(1 + len(maps), SHOWN, squeeze=False)
    for column, t in enumerate(times):
        axes[0, column].imshow(_picture(frames[t]), cmap="gray", vmin=0, vmax=255)
        axes[0, column].set_title(f"t = {t}", fontsize=11)
        for row, values in enumerate(maps.values(), start=1):
            axes[row, column].imshow(
                values[t].cpu().numpy(), cmap="viridis", vmin=float(values.min()), vmax=float(values.max())
            )
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for row, name in enumerate(["frame", *maps]):
        axes[row, 0].set_ylabel(name, fontsize=11)
    return _render(figure)


def _evenly_spaced(length: int, number: int) -> list[int]:
    return np.linspace(0, length - 1, number).round().astype(int).tolist()


def _picture(frame: Tensor) -> np.ndarray:
    """[C, H, W] -> [H, W] or, in colour, [H, W, 3], brightened: many games are dark."""
    image = (255 * (frame.cpu().numpy() / 255) ** 0.6).astype(np.uint8)
    return image.transpose(1, 2, 0) if len(image) == 3 else image[0]


def _render(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
