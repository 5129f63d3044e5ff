"""Pictures of forecasts: the history, the forecast and its interval, as Pillow images."""

from collections.abc import Sequence

import numpy as np
from PIL import Image
from torch import Tensor

MOST_DRAWN = 16  # channels of a picture


def forecast_picture(
    history: Tensor,
    forecast: Tensor,
    channels: Sequence[str],
    times: Sequence[str],
    interval: Tensor | None = None,
    target: Tensor | None = None,
) -> Image.Image:
    """Draws a forecast behind the history, a panel for each channel; of more than 16 channels, the first 16.

    Args:
        history: (T, C), the last step before the forecast.
        forecast: (H, C).
        channels: names of the C channels.
        times: names of the H steps.
        interval: lower and upper end (2, H, C).
        target: what came (H, C).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # without pyplot, which would look for a screen
    from matplotlib.figure import Figure

    num_steps, num_drawn = len(history), min(len(channels), MOST_DRAWN)
    figure = Figure((9.0, 1.0 + 2.0 * num_drawn), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    if num_drawn < len(channels):
        figure.suptitle(f"{num_drawn} of {len(channels)} channels")
    past = np.arange(1 - num_steps, 1)  # the origin is 0
    future = np.arange(1, 1 + len(forecast))
    panels = figure.subplots(num_drawn, sharex=True, squeeze=False)[:, 0]
    for c, panel in enumerate(panels):
        known, values = history[:, c].cpu().numpy(), forecast[:, c].cpu().numpy()
        panel.plot(past, known, color="black", linewidth=1, label="history")
        panel.plot(np.append(0, future), np.append(known[-1:], values), color="tab:blue", linewidth=1, label="forecast")
        if interval is not None:
            low, high = interval[:, :, c].cpu().numpy()
            panel.fill_between(future, low, high, color="tab:blue", alpha=0.25, linewidth=0, label="interval")
        if target is not None:
            panel.plot(future, target[:, c].cpu().numpy(), color="black", linewidth=1, linestyle=":", label="target")
        panel.set_ylabel(channels[c])
    panels[0].legend(loc="upper left")
    panels[-1].set_xticks([1, len(forecast)] if len(forecast) > 1 else [1], [times[0], times[-1]][: len(forecast)])
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
