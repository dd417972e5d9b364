// Show the values of all lines of a chart under the pointer.
for (const svg of document.querySelectorAll(".chart svg[data-lines]")) {
  const lines = JSON.parse(svg.dataset.lines), area = JSON.parse(svg.dataset.area);
  const pointer = svg.querySelector(".pointer"), figure = svg.parentNode, box = document.createElement("div");
  const width = svg.viewBox.baseVal.width;
  box.className = "values"; box.hidden = true; figure.append(box);
  const scale = ([start, end, low, high], log) => value => {
    const by = log ? Math.log10 : x => x;
    return start + (by(value) - by(low)) / (by(high) - by(low)) * (end - start);
  };
  const x = scale(area.x, false), y = scale(area.y, area.log);
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
    const place = svg.getBoundingClientRect(), at = (event.clientX - place.left) / place.width * width;
    const off = (line, k) => Math.abs(x(line.at[k]) - at);
    const nearest = line => line.at.reduce((best, _, k) => off(line, k) < off(line, best) ? k : best, 0);
    const found = lines.map(line => [line, nearest(line)]);
    const [leader, index] = found.reduce((a, b) => off(...b) < off(...a) ? b : a);
    const middle = x(leader.at[index]);
    pointer.replaceChildren(); box.replaceChildren();
    shape("line", {x1: middle, x2: middle, y1: area.y[1], y2: area.y[0]});
    row([svg.dataset.x + " " + leader.at[index]]);
    for (const [line, k] of found) {
      if (Math.abs(x(line.at[k]) - middle) > 12) continue;
      shape("circle", {cx: x(line.at[k]), cy: y(line.mean[k]), r: 4, class: "s" + line.style});
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
