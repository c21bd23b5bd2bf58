"""The losses as one self-contained SVG file.

Three panels: training losses of all runs; the held-out loss of each lineage minus that of the run without quantisation
and with the same seed, with the spread of the seeds; the second panel enlarged.
"""

import html
import math

WIDTH, LEFT, RIGHT = 760, 64, 130
PANEL_HEIGHT, PANEL_STEP, TOP = 250, 320, 40
COLOURS = {"q8": "#0b6bcb", "q4": "#c2410c", "f32": "#2f7d32", "paddle-o1": "#7b4bb7", "paddle-o2": "#b08900"}
GREYS = ("#20262c", "#7d858c", "#c3c9ce")
SMOOTHED_STEPS = 5
STYLE = ("svg{background:#fff;font:12px sans-serif;fill:#20262c}.grid{stroke:#dde2e6}.line{fill:none;stroke-width:1.6}"
         ".band{fill:#e9edf0}.title{font-weight:bold}")


class Panel:
    """Axes for a range of values, and the curves on them."""

    def __init__(self, number, title, ends, values):
        self.top = TOP + number * PANEL_STEP
        self.bottom = self.top + PANEL_HEIGHT
        self.ends, self.steps = ends, ends[-1]
        self.ticks = _ticks(min(values), max(values))
        self.clip = f"panel{number}"
        self.out = [_text(LEFT, self.top - 14, "start", title, "title"),
                    f'<clipPath id="{self.clip}"><rect x="{LEFT}" y="{self.top - 4}" '
                    f'width="{WIDTH - LEFT - RIGHT + 4}" height="{PANEL_HEIGHT + 8}"/></clipPath>']

    def x(self, step):
        return LEFT + step / self.steps * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        low, high = self.ticks[0], self.ticks[-1]
        return self.bottom - (value - low) / (high - low) * PANEL_HEIGHT

    def axes(self):
        for tick in self.ticks:
            self.out.append(f'<path class="grid" d="M{LEFT} {self.y(tick):.1f}H{WIDTH - RIGHT}"/>')
            self.out.append(_text(LEFT - 8, self.y(tick) + 4, "end", f"{tick:.4g}"))
        for step in (0, *self.ends):
            self.out.append(_text(self.x(step), self.bottom + 17, "middle", str(step)))
        self.out.append(_text((LEFT + WIDTH - RIGHT) / 2, self.bottom + 34, "middle", "step"))

    def line(self, points, colour):
        path = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in points)
        self.out.append(f'<polyline class="line" clip-path="url(#{self.clip})" stroke="{colour}" points="{path}"/>')

    def dots(self, points, colour):
        self.out += [f'<circle clip-path="url(#{self.clip})" cx="{self.x(step):.1f}" cy="{self.y(value):.1f}" r="3" '
                     f'fill="{colour}">'
                     f"<title>step {step}: {value:+.5f}</title></circle>" for step, value in points]

    def band(self, lows, highs):
        edge = [*lows, *reversed(highs)]
        path = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in edge)
        self.out.append(f'<polygon class="band" clip-path="url(#{self.clip})" points="{path}"/>')

    def legend(self, entries):
        for number, (name, colour) in enumerate(entries):
            y = self.top + 8 + 18 * number
            self.out.append(f'<path class="line" stroke="{colour}" d="M{WIDTH - RIGHT + 12} {y}h16"/>')
            self.out.append(_text(WIDTH - RIGHT + 34, y + 4, "start", name))


def _text(x, y, anchor, text, style=None):
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(text)}</text>'


def _ticks(low, high):
    """About six round numbers that enclose both."""
    raw = max(high - low, 1e-9) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    begin, end = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(begin, max(end, begin + 1) + 1)]


def _smoothed(losses):
    """Means of a few steps, each at its last step."""
    return [(end, sum(losses[end - SMOOTHED_STEPS:end]) / SMOOTHED_STEPS)
            for end in range(SMOOTHED_STEPS, len(losses) + 1)]


def _held_out(run):
    return {int(step): loss for step, loss in run["held_out"].items()}


def _training_panel(runs, colours, ends):
    curves = {run["name"]: _smoothed(run["losses"]) for run in runs}
    panel = Panel(0, f"Training loss, mean of {SMOOTHED_STEPS} steps", ends,
                  [value for curve in curves.values() for _, value in curve])
    panel.axes()
    for name, curve in curves.items():
        panel.line(curve, colours[name])
    panel.legend([(name, colours[name]) for name in curves])
    return panel


class Differences:
    """Held-out losses minus those of the run without quantisation and with the same seed."""

    def __init__(self, seeded, lineages, reference):
        base = _held_out(reference)
        self.ends = sorted(base)
        self.curves = {run["name"]: [(step, loss - base[step]) for step, loss in _held_out(run).items()]
                       for run in lineages}
        spread = {step: [_held_out(run)[step] - base[step] for run in seeded] for step in base}
        self.band = [[(step, pick(values)) for step, values in spread.items()] for pick in (min, max)]

    def panel(self, number, title, colours, names, *, spread):
        """A panel scaled to the runs with these names, and to the spread if it is drawn; other curves may
        be cut off."""
        values = [value for name in names if name in self.curves for _, value in self.curves[name]]
        edges = self.band if spread else []
        panel = Panel(number, title, self.ends, values + [value for edge in edges for _, value in edge])
        if spread:
            panel.band(*self.band)
        panel.axes()
        for name, curve in self.curves.items():
            panel.line(curve, colours[name])
            panel.dots(curve, colours[name])
        panel.legend([(name, colours[name]) for name in self.curves])
        return panel


def svg_of(document):
    runs = document["runs"]
    seeded = [run for run in runs if not run["resumes"]]
    lineages = [run for run in runs if run["resumes"]]
    reference = next(run for run in seeded if run["seed"] == document["middle_seed"])
    colours = {**COLOURS, **{run["name"]: grey for run, grey in zip(seeded, GREYS)}}
    differences = Differences(seeded, lineages, reference)
    title = "Held-out loss less that of the same seed without quantisation; grey: spread of the seeds"
    panels = [_training_panel(runs, colours, differences.ends),
              differences.panel(1, title, colours, ("q8", "q4"), spread=True),
              differences.panel(2, "The same, enlarged", colours, ("q8", "q4", "f32"), spread=False)]
    body = "\n".join(line for panel in panels for line in panel.out)
    height = TOP + len(panels) * PANEL_STEP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
            f"<style>{STYLE}</style>\n{body}\n</svg>\n")
