"""How the page looks: colours, style sheet, and the script of the charts."""

from __future__ import annotations

from collections.abc import Iterable

# Okabe and Ito's colours with Tol's indigo, which stay apart in the common colour blindnesses; (on white, on black).
COLOURS = (
    ("#0072B2", "#4BA6E6"),
    ("#D55E00", "#F58A4B"),
    ("#009E73", "#2CC79B"),
    ("#C0609A", "#E39AC6"),
    ("#B98200", "#F0BE4A"),
    ("#332288", "#9C90F2"),
    ("#4A9CC9", "#A5DCFF"),
    ("#555555", "#BBBBBB"),
)
DASHES = ("none", "7 4", "2 3", "9 3 2 3")
"""Once round the colours, the next lines are dashed."""
USUAL = {
    "bot-hard": 0,
    "transformer": 1,
    "mlp": 2,
    "bot-mix": 3,
    "bot-soft": 4,
    "bot-hard-random": 5,
    "bot-mix-random": 6,
}
"""The variants' colours, the same on every page."""


def styles(labels: Iterable[str]) -> dict[str, int]:
    """Label -> number of its look; no two share one while there are enough."""
    labels = list(dict.fromkeys(labels))
    chosen = {label: USUAL[label] for label in labels if label in USUAL}
    free = [style for style in range(len(COLOURS) * len(DASHES)) if style not in chosen.values()]
    others = [label for label in labels if label not in USUAL]
    return chosen | {label: free[index % len(free)] for index, label in enumerate(others)}


def style_sheet(used: Iterable[int]) -> str:
    light, dark, rules = [], [], []
    for style in sorted(set(used)):
        on_white, on_black = COLOURS[style % len(COLOURS)]
        light.append(f"--s{style}:{on_white};")
        dark.append(f"--s{style}:{on_black};")
        dash = DASHES[style // len(COLOURS) % len(DASHES)]
        rules.append(f".s{style}{{color:var(--s{style});stroke-dasharray:{dash}}}")
    return (
        f":root{{color-scheme:light dark;{LIGHT}{''.join(light)}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{DARK}{''.join(dark)}}}}}\n"
        f"{RULES}{''.join(rules)}\n"
    )


LIGHT = "--page:#fbfaf8;--card:#fff;--ink:#1d2126;--soft:#5d6570;--edge:#e2dfd9;--grid:#ebe8e3;--mark:#fdf1d3;"
DARK = "--page:#15171a;--card:#1d2024;--ink:#e9e7e3;--soft:#a0a7b0;--edge:#33373d;--grid:#2b2f34;--mark:#40361c;"
RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
  font:17px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans","Liberation Sans",sans-serif}
main{max-width:68rem;margin:0 auto;padding:3rem 1.25rem 5rem}
header{border-bottom:1px solid var(--edge);padding-bottom:1.25rem;margin-bottom:2rem}
h1{font-size:clamp(1.7rem,4.5vw,2.5rem);line-height:1.15;letter-spacing:-.02em;margin:0 0 .5rem;font-weight:700;
  overflow-wrap:anywhere}
h2{font-size:1.5rem;letter-spacing:-.01em;line-height:1.25;margin:3.5rem 0 .8rem;overflow-wrap:anywhere}
h3{font-size:1.08rem;margin:2.25rem 0 .6rem}
p{max-width:44rem;margin:.75rem 0;overflow-wrap:anywhere}
.soft,figcaption,small,dt{color:var(--soft)}
header p,.soft,figcaption{font-size:.88rem;line-height:1.5}
.words p{font-size:1.06rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.83rem}
pre{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:.9rem 1rem;line-height:1.55;
  overflow-x:auto}
a{color:inherit}
.warning{background:var(--mark);border-radius:8px;padding:.75rem 1rem;margin:1.25rem 0;font-size:.92rem}
.warning p{margin:0;max-width:none}.warning ul{margin:.35rem 0 0;padding-left:1.2rem}
.warning li{overflow-wrap:anywhere}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--edge);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums lining-nums}
th,td{padding:.55rem .8rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--edge)}
tbody tr:last-child>*{border-bottom:0}
thead th{font-weight:600;font-size:.83rem;color:var(--soft);white-space:nowrap;vertical-align:bottom}
thead th[colspan]{text-align:center;border-bottom:1px solid var(--edge);color:var(--ink);font-size:.9rem}
thead .first,td.first{border-left:1px solid var(--edge)}
tbody th{font-weight:600;min-width:9rem;max-width:16rem;overflow-wrap:anywhere;position:sticky;
  left:0;background:var(--card);z-index:1}
.number{text-align:right;white-space:nowrap}
.result{min-width:8.2rem}
.result b{font-weight:500;font-size:1.02rem}
.result .range{display:block;color:var(--soft);font-size:.78rem}
.best{background:var(--mark)}.best b{font-weight:700}
.strip{display:block;width:100%;height:10px;margin:.2rem 0 .1rem;overflow:visible}
.strip .track{stroke:var(--grid);stroke-width:1}
.strip .span{stroke:currentColor;stroke-width:4;stroke-dasharray:none;stroke-linecap:round;opacity:.45}
.strip circle{fill:currentColor}
tr.verdict>*{font-size:.82rem;color:var(--soft);font-weight:400}
.tag{display:inline-block;font-size:.7rem;font-weight:600;line-height:1.5;padding:0 .45em;border-radius:4px;
  background:var(--mark);color:var(--ink);margin-left:.5em;vertical-align:.08em}
.key{display:inline-block;width:1.5em;height:10px;margin-right:.5em;vertical-align:middle}
.key path{stroke:currentColor;stroke-width:3;fill:none}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.5rem;list-style:none;padding:0;margin:.5rem 0 1rem;font-size:.92rem}
.charts,.films,.pictures{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,25rem),1fr))}
.films{grid-template-columns:repeat(auto-fit,minmax(min(100%,10.5rem),1fr))}
.films figure{max-width:30rem}
.pictures{grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));align-items:start}
figure{margin:0;background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:.8rem;min-width:0}
.chart{position:relative}
.chart figcaption{color:var(--ink);font-weight:600;margin-bottom:.25rem;overflow-wrap:anywhere}
.chart svg{display:block;width:100%;height:auto;touch-action:pan-y}
.axis{fill:var(--soft);font-size:12px}
.grid{stroke:var(--grid)}.base{stroke:var(--soft);stroke-width:.8}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.dense{stroke-width:1}
.band{fill:currentColor;stroke:none;opacity:.16}
.dot{fill:currentColor;stroke:none}
.pointer line{stroke:var(--soft);stroke-width:.8}.pointer circle{fill:currentColor;stroke:var(--card);stroke-width:1.5}
.values{position:absolute;pointer-events:none;background:var(--card);border:1px solid var(--edge);border-radius:8px;
  padding:.45rem .65rem;font-size:.78rem;line-height:1.5;box-shadow:0 4px 14px rgb(0 0 0/.14);white-space:nowrap;
  z-index:3;font-variant-numeric:tabular-nums;max-width:96%}
.values div{display:flex;gap:.6rem;justify-content:space-between}
.values i{font-style:normal;color:var(--soft)}
.films img,.films video,.pictures img{display:block;width:100%;height:auto;border-radius:6px;background:#fff}
.pictures img{padding:.4rem;margin:0 auto;width:auto;max-width:100%}
.films figcaption,.pictures figcaption{margin-top:.6rem}
.films b{color:var(--ink)}
details{margin:1rem 0}summary{cursor:pointer;font-size:.92rem;color:var(--soft)}
details[open]>summary{margin-bottom:.75rem}
details .charts{margin-top:.5rem}
@media (max-width:40rem){body{font-size:16px}main{padding:1.75rem .9rem 3rem}th,td{padding:.5rem .6rem}
  figure{padding:.6rem}.result{min-width:7rem}
  tbody th{min-width:8rem}.films figcaption{font-size:.8rem}}
@media print{.wide,figure{break-inside:avoid}}
"""

DEPLOYMENT_RULES = """
:root{--stop:#c0271d}
@media (prefers-color-scheme:dark){:root{--stop:#ff7a6b}}
.small{gap:.6rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr))}
.small figure{padding:.55rem}.small figcaption{font-size:.82rem}
.chart small{font-weight:400}
.phase{fill:var(--ink);stroke:none;opacity:.06}
.phase.policy{opacity:0}.phase.hold{opacity:.1}.phase.damping{opacity:.14}
.limit{stroke:var(--stop);stroke-width:1;stroke-dasharray:4 3}
.stop{stroke:var(--stop);stroke-width:1.6}
.quantile{stroke:var(--ink);stroke-width:1;stroke-dasharray:2 2}
.bar{fill:var(--s0)}
.ring{fill:var(--card);stroke:currentColor;stroke-width:1.5;stroke-dasharray:none}
.key.mark{width:.75em;height:.75em}.key.boxed{outline:1px solid var(--edge)}
.lane{display:block;width:100%;height:14px}.lane.tall{height:20px}.lane.tall text{font-size:12px;fill:var(--ink)}
.lane.tall text.axis{fill:var(--soft)}
.lane.marks path{stroke:var(--stop);stroke-width:1.2;vector-effect:non-scaling-stroke;fill:none}
.when .lanes{width:100%;min-width:11rem;padding-left:.4rem}
.when tbody th{min-width:7rem}
.when td,.when th{vertical-align:middle;padding-top:.35rem;padding-bottom:.35rem}
.beside thead th{white-space:normal}.beside :is(th,td){padding-left:.45rem;padding-right:.45rem}
.beside tbody th{min-width:11.5rem}.uneven{align-items:start}
.events{width:fit-content;max-width:100%}.events table{width:auto}
section>h2 .key{width:1.1em}
details>section>h2{margin-top:1.5rem}
"""

SCRIPT = """
for (const svg of document.querySelectorAll(".chart svg[data-lines]")) {
  const lines = JSON.parse(svg.dataset.lines), pointer = svg.querySelector(".pointer"), figure = svg.parentNode;
  const box = document.createElement("div"), height = svg.viewBox.baseVal.height, width = svg.viewBox.baseVal.width;
  box.className = "values"; box.hidden = true; figure.append(box);
  const shape = (name, attributes) => {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    pointer.append(made);
  };
  const row = (words, style) => {
    const made = document.createElement("div");
    words.forEach((word, index) => {
      const part = document.createElement(index ? "i" : "span");
      part.textContent = word;
      if (!index && style !== undefined) part.className = "s" + style;
      made.append(part);
    });
    box.append(made);
  };
  const leave = () => { box.hidden = true; pointer.replaceChildren(); };
  const move = event => {
    const place = svg.getBoundingClientRect(), x = (event.clientX - place.left) / place.width * width;
    const nearest = line => line.x.reduce((best, at, k) => Math.abs(at - x) < Math.abs(line.x[best] - x) ? k : best, 0);
    const found = lines.map(line => [line, nearest(line)]);
    const [leader, index] = found.reduce((a, b) => Math.abs(b[0].x[b[1]] - x) < Math.abs(a[0].x[a[1]] - x) ? b : a);
    const at = leader.x[index];
    pointer.replaceChildren(); box.replaceChildren();
    shape("line", {x1: at, x2: at, y1: 12, y2: height - 40});
    row([svg.dataset.x + " " + leader.at[index]]);
    for (const [line, k] of found) {
      if (Math.abs(line.x[k] - at) > 12) continue;
      shape("circle", {cx: line.x[k], cy: line.y[k], r: 4, class: "s" + line.style});
      const range = line.low ? " (" + line.low[k] + " to " + line.high[k] + ")" : "";
      row([line.label, line.mean[k] + range], line.style);
    }
    box.hidden = false;
    const left = event.clientX - figure.getBoundingClientRect().left;
    const room = figure.clientWidth - box.offsetWidth - 4;
    box.style.left = Math.max(4, Math.min(room, left + (left > room - 16 ? -box.offsetWidth - 16 : 16))) + "px";
    box.style.top = "2.6rem";
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}
"""
