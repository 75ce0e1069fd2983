"""Draw measured numbers as a bar chart in SVG that is readable on light and dark pages."""

from collections.abc import Sequence
from html import escape

LINE, LEFT, WIDTH = 22, 230, 360
COLUMNS = ("time, as a multiple of ours", "peak memory, as a multiple of ours")
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .ours { fill: #0b7285 } .peer { fill: #adb5bd }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #3bc9db } .peer { fill: #596069 } }
"""


def bar_chart(cases: Sequence[tuple[str, Sequence[tuple[str, float, float]]]]) -> str:
    """Each case has a title and bars (name, time, memory) as multiples of its first, ours."""
    longest = [max(bar[column] for _, bars in cases for bar in bars) for column in (1, 2)]
    lines: list[str] = []
    y = 30
    for column, label in enumerate(COLUMNS):
        lines.append(f'<text x="{LEFT + column * (WIDTH + 60)}" y="18">{label}</text>')
    for title, bars in cases:
        y += LINE
        lines.append(f'<text class="title" x="10" y="{y - 6}">{escape(title)}</text>')
        for place, (name, *multiples) in enumerate(bars):
            y += LINE
            lines.append(f'<text x="{LEFT - 10}" y="{y - 6}" text-anchor="end">{escape(name)}</text>')
            for column, multiple in enumerate(multiples):
                x = LEFT + column * (WIDTH + 60)
                length = max(2.0, multiple / longest[column] * WIDTH)
                kind = "peer" if place else "ours"
                lines.append(f'<rect class="{kind}" x="{x}" y="{y - 18}" width="{length:.0f}" height="14" rx="2"/>')
                lines.append(f'<text x="{x + length + 6:.0f}" y="{y - 6}">{multiple:.3g}×</text>')
        y += 8
    width = LEFT + 2 * (WIDTH + 60)
    body = "\n".join(lines)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}"><style>{STYLE}</style>\n{body}\n</svg>\n'
