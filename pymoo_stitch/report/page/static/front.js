// The front: every network as a point, fronts as steps, references as crosses. Hover, click to pin, drag to filter.

const front = { chart: null, placed: [], overlay: null, tip: null, brush: null };

function drawFront() {
  const container = byId("front"),
    split = state.split;
  const placed = data.networks.map((network) => ({ network, at: on(network, split) })).filter(({ at }) => at);
  const view = frontView(placed);
  const more = data.problem.more_is_better ? "" : " (minimised)";
  const drawn = chart(container, {
    x: { ...view.x, label: `multiply-adds, % of ${data.largest} (${whole(data.problem.largest)})` },
    y: { ...view.y, label: data.problem.metric.replaceAll("_", " ") + more },
    height: Math.min(500, Math.max(330, container.clientWidth * 0.48)),
    label: `Multiply-adds against ${data.problem.metric} on ${split} images: ${plural(placed.length, "network")}. The table below has the same networks.`,
  });
  front.chart = drawn;
  for (const point of placed) {
    point.x = drawn.x(percentOf(point.at.cost));
    point.y = drawn.y(metricOf(point.at.error));
  }
  const shown = placed.filter(({ x, y }) => isInside(drawn.area, x, y));
  front.placed = shown;
  drawShades(drawn, placed);
  drawFaint(drawn, shown);
  drawFronts(drawn, placed);
  drawCascades(drawn, placed);
  drawReferences(drawn, placed);
  front.overlay = shape("g");
  front.tip = element("div", { class: "tip", role: "tooltip", hidden: true });
  drawn.svg.append(front.overlay);
  container.append(front.tip);
  drawMarks();
  const hidden = placed.length - shown.length;
  byId("front-note").textContent = frontNote(shown.length, hidden);
  refill(byId("zooms"), ...zoomButtons(hidden));
}

function frontNote(shown, hidden) {
  const role = {
    [data.splits.at(-1)]: "Nothing is chosen on these images: they only show how good the choice is.",
    [data.deciding]: "Choose on these images, which no search has seen.",
    [data.searched]: "The search saw these images.",
  }[state.split];
  const count = `${plural(shown, "network")}${hidden ? `, ${whole(hidden)} outside of this view` : ""}.`;
  const others = state.split !== data.searched && "Only fronts, references and cascades were evaluated on them.";
  return [data.deciding && role, count, others, "Hover for details, click to pin, drag to filter."]
    .filter(Boolean)
    .join(" ");
}

/** Which costs (in %) and metrics are shown: as a rule from the best network to a little below the worst reference. */
function frontView(placed) {
  const { cost, metric } = state.filter;
  const references = placed.filter(({ network }) => network.kind === "reference");
  const errors = placed.map(({ at }) => at.error),
    best = errors.reduce((a, b) => Math.min(a, b), Infinity);
  let worst = references.length ? Math.max(...references.map(({ at }) => at.error)) : data.problem.floor;
  worst += Math.max(0.3 * (worst - best), 0.004);
  if (state.everything) worst = errors.reduce((a, b) => Math.max(a, b), worst);
  const costs = placed.filter(({ at }) => at.error <= worst).map(({ at }) => percentOf(at.cost));
  const least = costs.reduce((a, b) => Math.min(a, b), 100),
    most = costs.reduce((a, b) => Math.max(a, b), 0.001);
  const margin = 0.05 * (most - least) || 1,
    room = 0.08 * (worst - best) || 0.01;
  const range = {
    x: { min: Math.max(0, least - margin), max: most + margin },
    y: { min: metricOf(worst), max: metricOf(best - room) },
  };
  if (state.zoom) {
    const [lower, upper] = data.problem.more_is_better ? ["min", "max"] : ["max", "min"];
    range.x = { min: cost.min ?? range.x.min, max: cost.max ?? range.x.max };
    range.y = { ...range.y, [lower]: metric.min ?? range.y[lower], [upper]: metric.max ?? range.y[upper] };
  }
  return range;
}

function zoomButtons(hidden) {
  const button = (text, change) =>
    element(
      "button",
      {
        type: "button",
        onclick: () => {
          change();
          drawFront();
        },
      },
      text,
    );
  const { cost, metric } = state.filter;
  const canZoom = [cost.min, cost.max, metric.min, metric.max].some((value) => value !== null);
  if (state.zoom) return [button("Zoom out", () => (state.zoom = false))];
  return [
    canZoom && button("Zoom to the filter", () => (state.zoom = true)),
    state.everything && button("Show the best", () => (state.everything = false)),
    !state.everything && hidden > 0 && button("Show everything", () => (state.everything = true)),
  ].filter(Boolean);
}

const isInside = ({ left, right, top, bottom }, x, y) =>
  x >= left - 1 && x <= right + 1 && y >= top - 1 && y <= bottom + 1;

/** What dominates a reference is shaded, darker what dominates the most expensive one. */
function drawShades({ inside, area }, placed) {
  const references = placed.filter(({ network }) => network.kind === "reference").sort((a, b) => a.at.cost - b.at.cost);
  references.forEach(({ x, y }, number) => {
    const opacity = number === references.length - 1 ? 0.2 : 0.09;
    const size = { width: Math.max(0, x - area.left), height: Math.max(0, y - area.top + 6) };
    inside.append(
      shape("rect", { x: area.left, y: area.top - 6, ...size, fill: "var(--shade)", "fill-opacity": opacity }),
    );
  });
}

/** All that was evaluated, on the canvas: fainter what stopped early, and what the filter leaves out. */
function drawFaint({ context }, shown) {
  const colors = data.algorithms.map((_, number) => color(`c${number % 7}`));
  const size = shown.length > 6000 ? 2.4 : 3.2;
  for (const { network, x, y } of shown) {
    if (network.kind === "reference" || network.kind === "cascade") continue;
    context.globalAlpha = (network.excluded ? 0.14 : 0.38) * (fits(network) ? 1 : 0.25);
    context.fillStyle = colors[network.by[0]] ?? color("muted");
    context.fillRect(x - size / 2, y - size / 2, size, size);
  }
  context.globalAlpha = 1;
}

/** The front of each algorithm as steps with markers, and intervals as bars. */
function drawFronts({ inside, area }, placed) {
  const places = new Map(placed.map((point) => [point.network, point]));
  data.algorithms.forEach((_, number) => {
    const own = placed
      .map(({ network }) => network)
      .filter((network) => network.kind !== "cascade" && network.by.includes(number));
    const points = frontOf(own, state.split).map((network) => places.get(network));
    if (!points.length) return;
    const path = stepPath(points.map(({ x, y }) => [x, y])) + `H${area.right}`;
    const line = {
      fill: "none",
      stroke: `var(--c${number % 7})`,
      "stroke-width": 1.8,
      "stroke-dasharray": DASHES[number % 5],
    };
    inside.append(shape("path", { d: path, ...line }));
    for (const point of points) inside.append(...intervalBar(point, `var(--c${number % 7})`));
    for (const { x, y } of points) inside.append(marker(number, x, y, points.length > 200 ? 2.6 : 4));
  });
}

function intervalBar({ network, x }, stroke) {
  const ends = on(network, state.split).interval;
  if (!ends) return [];
  const [y1, y2] = ends.map((error) => front.chart.y(metricOf(error)));
  return [shape("line", { x1: x, x2: x, y1, y2, stroke, "stroke-opacity": 0.45, "stroke-width": 1.2 })];
}

/** Plain cascades as a dotted curve, those with stitches as dots alone. */
function drawCascades({ inside }, placed) {
  const cascades = placed.filter(({ network }) => network.kind === "cascade").sort((a, b) => a.at.cost - b.at.cost);
  const plain = cascades.filter(({ network }) => !network.stitches);
  const line = { fill: "none", stroke: "var(--ink)", "stroke-width": 1.3, "stroke-dasharray": "1.5 2.5" };
  inside.append(shape("path", { d: linePath(plain.map(({ x, y }) => [x, y])), ...line }));
  for (const point of cascades) {
    inside.append(...intervalBar(point, "var(--ink)"));
    inside.append(shape("circle", { cx: point.x, cy: point.y, r: 3.2, fill: "var(--ink)", stroke: "var(--paper)" }));
  }
}

/** References as crosses with their names, where these hide nothing. */
function drawReferences({ svg, inside, area }, placed) {
  const taken = [];
  for (const point of placed.filter(({ network }) => network.kind === "reference")) {
    const { network, x, y } = point;
    if (!isInside(area, x, y)) continue;
    inside.append(...intervalBar(point, "var(--ink)"));
    const cross = `M${x - 6},${y - 6}L${x + 6},${y + 6}M${x - 6},${y + 6}L${x + 6},${y - 6}`;
    svg.append(shape("path", { d: cross, stroke: "var(--ink)", "stroke-width": 2.6, fill: "none" }));
    svg.append(nameBeside(network.name, x, y, area, taken));
  }
}

/** A label at one of four places: the first at which it meets no other label and stays inside. */
function nameBeside(name, x, y, area, taken) {
  const text = name.length > 30 ? `${name.slice(0, 29)}…` : name,
    width = 7 * text.length + 6;
  const places = [
    [x + 11, y + 16, "start"],
    [x - 11, y + 16, "end"],
    [x + 11, y - 9, "start"],
    [x - 11, y - 9, "end"],
  ];
  const boxes = places.map(([left, base, anchor]) => ({
    left: anchor === "start" ? left : left - width,
    base,
    anchor,
    start: left,
  }));
  const fits = (box) =>
    box.left > area.left &&
    box.left + width < area.right + 10 &&
    box.base > area.top &&
    box.base < area.bottom &&
    !taken.some(
      (other) =>
        Math.abs(other.base - box.base) < 14 && box.left < other.left + other.width && other.left < box.left + width,
    );
  const box = boxes.find(fits) ?? boxes[0];
  taken.push({ ...box, width });
  return shape(
    "text",
    { x: box.start, y: box.base, "text-anchor": box.anchor, class: "halo", "font-weight": 600 },
    text,
  );
}

/** What is recommended, pinned and hovered. */
function drawMarks() {
  const { overlay, chart: drawn } = front;
  if (!overlay) return;
  overlay.replaceChildren();
  const place = (network) => {
    const at = network && on(network, state.split);
    return at && [drawn.x(percentOf(at.cost)), drawn.y(metricOf(at.error))];
  };
  const ring = (network, r, width) => {
    const [x, y] = place(network) ?? [];
    if (x === undefined || !isInside(drawn.area, x, y)) return null;
    overlay.append(shape("circle", { cx: x, cy: y, r, fill: "none", stroke: "var(--ink)", "stroke-width": width }));
    return [x, y];
  };
  const label = (text, [x, y], dy) =>
    overlay.append(shape("text", { x, y: y + dy, "text-anchor": "middle", class: "halo", "font-weight": 700 }, text));
  const recommended = data.networks.find((network) => network.member?.recommended);
  const pins = pinned();
  if (recommended) {
    const at = ring(recommended, 11, 1);
    if (at && !pins.includes(recommended)) label("recommended", at, -16);
  }
  pins.forEach((network, number) => {
    const at = ring(network, 8, 2.4);
    if (at) label("AB"[number] + (network === recommended ? " · recommended" : ""), at, -16);
  });
  const hovered = data.byId.get(state.hovered);
  if (hovered) ring(hovered, 8, 1.6);
}

function showTip(point) {
  const { tip } = front;
  tip.hidden = !point;
  if (!point) return;
  tip.replaceChildren(...tipLines(point.network));
  const width = byId("front").clientWidth,
    right = point.x > width / 2;
  tip.style.left = right ? "" : `${point.x + 14}px`;
  tip.style.right = right ? `${width - point.x + 14}px` : "";
  tip.style.top = `${Math.max(0, Math.min(point.y - 20, byId("front").clientHeight - tip.offsetHeight))}px`;
}

function tipLines(network) {
  const at = on(network, state.split),
    { metric } = data.problem;
  const [value, low, high] = at.metrics?.[metric] ?? [metricOf(at.error)];
  const stitches = network.stitches === null ? "" : ` · ${plural(network.stitches, "stitch", "stitches")}`;
  return [
    element("p", {}, element("strong", {}, network.name), ` ${kindText(network)}`),
    element("p", {}, `${costText(at.cost)} of ${data.largest}'s cost (${whole(at.cost)})${stitches}`),
    element(
      "p",
      {},
      `${metric} on ${state.split}: ${network.excluded ? "about " : ""}${fixed(value)}${low === undefined ? "" : ` (${fixed(low)}–${fixed(high)})`}`,
    ),
    network.found.length > 0 && element("p", {}, foundText(network)),
    ...inWords(network, state.split).map((sentence) => element("p", {}, sentence)),
  ].filter(Boolean);
}

/** The nearest point to a place, if it is near; what stands out wins over the faint ones. */
function nearest(x, y) {
  let found = null,
    least = Infinity;
  for (const point of front.placed) {
    const faint = point.network.kind === "evaluated";
    const distance = (point.x - x) ** 2 + (point.y - y) ** 2 + (faint ? 30 : 0);
    if (distance < least && distance < 18 ** 2) [found, least] = [point, distance];
  }
  return found;
}

function listenToFront() {
  const container = byId("front");
  const position = (event) => {
    const box = container.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  container.addEventListener("pointermove", (event) => {
    const [x, y] = position(event);
    if (front.brush) return moveBrush(x, y);
    const point = nearest(x, y);
    hover(point?.network.id ?? null);
    showTip(point);
  });
  container.addEventListener("pointerleave", () => {
    hover(null);
    showTip(null);
  });
  container.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button) return;
    const [x, y] = position(event);
    front.brush = { x, y, rect: null };
    container.setPointerCapture(event.pointerId);
  });
  container.addEventListener("pointerup", (event) => {
    const [x, y] = position(event),
      brush = front.brush;
    front.brush = null;
    if (brush?.rect) return filterBy(brush, x, y);
    const point = nearest(x, y);
    if (point) togglePin(point.network.id);
  });
  container.addEventListener("pointercancel", () => {
    front.brush = null;
  });
}

function moveBrush(x, y) {
  const { brush, chart: drawn } = front;
  if (!brush.rect) {
    if (Math.hypot(x - brush.x, y - brush.y) < 6) return;
    brush.rect = shape("rect", { fill: "var(--accent)", "fill-opacity": 0.15, stroke: "var(--accent)" });
    drawn.svg.append(brush.rect);
    showTip(null);
  }
  const size = {
    x: Math.min(x, brush.x),
    y: Math.min(y, brush.y),
    width: Math.abs(x - brush.x),
    height: Math.abs(y - brush.y),
  };
  for (const [name, value] of Object.entries(size)) brush.rect.setAttribute(name, value);
}

/** Whoever drags a rectangle sets the filters of cost and metric. */
function filterBy(brush, x, y) {
  const { invert } = front.chart;
  const range = (a, b, digits) => {
    const [min, max] = [a, b].sort((p, q) => p - q);
    return { min: Number(min.toFixed(digits)), max: Number(max.toFixed(digits)) };
  };
  setFilter({ cost: range(invert.x(brush.x), invert.x(x), 1), metric: range(invert.y(brush.y), invert.y(y), 4) });
}
