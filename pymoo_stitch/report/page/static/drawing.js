// Drawings of networks, from the shapes that the report laid out: boxes, lines and texts, in hundredths of an inch.

function drawing({ width, height, looks, shapes }, title) {
  const arrow = `arrow-${(drawing.count = (drawing.count ?? 0) + 1)}`;
  const svg = shape(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    shape(
      "marker",
      {
        id: arrow,
        viewBox: "0 0 8 8",
        refX: 8,
        refY: 4,
        markerWidth: 9,
        markerHeight: 9,
        markerUnits: "userSpaceOnUse",
        orient: "auto",
      },
      shape("path", { d: "M0,0L8,4L0,8Z", fill: "context-stroke" }),
    ),
  );
  // As wide as its place, but not so small that it cannot be read: rather, one scrolls.
  svg.style.width = "100%";
  svg.style.minWidth = `${0.7 * width}px`;
  svg.style.maxWidth = `${0.96 * width}px`;
  for (const [look, ...places] of shapes) {
    const { kind, ...rest } = looks[look];
    svg.append(...{ box: drawnBox, line: drawnLine, text: drawnText }[kind](places, rest, arrow));
  }
  return svg;
}

/** A colour by its name: of the page, or "0/15", 15 % of the first series' on paper. */
function paint(name) {
  const [base, percent] = name.split("/"),
    full = /^\d+$/.test(base) ? `var(--c${base})` : `var(--${base})`;
  return percent ? `color-mix(in srgb, ${full} ${percent}%, var(--paper))` : full;
}

const POINT = 100 / 72; // in hundredths of an inch

function drawnBox([x, y, width, height], { fill, edge = "paper", line = 0 }) {
  const look = { fill: paint(fill), stroke: line ? paint(edge) : "none", "stroke-width": line * POINT };
  return [shape("rect", { x, y, width, height, ...look })];
}

function drawnLine(places, { color: name = "muted", line = 1.1, end = "" }, arrow) {
  const points = Array.from({ length: places.length / 2 }, (_, i) => [places[2 * i], places[2 * i + 1]]);
  const look = { fill: "none", stroke: paint(name), "stroke-width": line * POINT };
  const path = shape("path", { d: linePath(points), ...look, "marker-end": end === "arrow" && `url(#${arrow})` });
  const [x, y] = points.at(-1);
  return end === "dot" ? [path, shape("circle", { cx: x, cy: y, r: 3, fill: paint(name) })] : [path];
}

function drawnText([x, y, ...lines], { size, color: name = "ink", bold, centered, at = "center", upright, paper }) {
  const height = 1.25 * size * POINT;
  // An upright text is turned about its place, so that it reads from below; "bottom" and "top" are then its ends.
  const anchor = upright ? { center: "middle", bottom: "start", top: "end" }[at] : centered ? "middle" : "start";
  const above = { top: 0, center: lines.length / 2, bottom: lines.length }[upright ? "center" : at];
  const look = { "font-size": size * POINT, "font-weight": bold ? 700 : 400, fill: paint(name), "text-anchor": anchor };
  const halo = paper && { "paint-order": "stroke", stroke: "var(--paper)", "stroke-width": 4 };
  const turned = upright && { transform: `rotate(-90 ${x} ${y})` };
  const line = (text, i) => shape("tspan", { x, y: y + (0.8 - above + i) * height }, text);
  return [shape("text", { ...look, ...halo, ...turned }, lines.map(line))];
}
