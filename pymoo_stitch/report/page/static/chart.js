// Charts: an SVG for axes, lines and labels, over a canvas for thousands of points.

const DASHES = ["", "7 2", "2 2", "7 2 2 2", "11 3"];

/** Steps of 1, 2 or 5 times a power of ten: the round numbers in a range. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((part) => part * power >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return { values: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

/**
 * An empty chart in a container, with axes.
 *
 * @param x, y {min, max, label, format}; of y, min is drawn below, and may be more than max.
 * @returns {svg, context, x, y, width, height, area}: functions from values to pixels, and the rectangle inside the axes.
 */
function chart(container, { x, y, height, left = 64, label }) {
  const width = Math.max(container.clientWidth, 240),
    ratio = window.devicePixelRatio || 1;
  const canvas = element("canvas", { width: width * ratio, height: height * ratio, "aria-hidden": "true" });
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  container.style.aspectRatio = `${width} / ${height}`; // so that both are scaled alike where paper is wider or narrower
  container.replaceChildren(canvas, svg);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const area = { left, right: width - 14, top: 10, bottom: height - 40 };
  const scale = (axis, from, to) => (value) => from + ((value - axis.min) / (axis.max - axis.min || 1)) * (to - from);
  const at = { x: scale(x, area.left, area.right), y: scale(y, area.bottom, area.top) };
  const horizontal = ticks(x.min, x.max, width / 80),
    vertical = ticks(Math.min(y.min, y.max), Math.max(y.min, y.max), height / 60);
  const grid = { stroke: "var(--pale)", "stroke-width": 0.6, "stroke-opacity": 0.6 };
  for (const value of vertical.values) {
    svg.append(shape("line", { x1: area.left, x2: area.right, y1: at.y(value), y2: at.y(value), ...grid }));
    const text = (y.format ?? plainTick(vertical.digits))(value);
    svg.append(shape("text", { x: area.left - 7, y: at.y(value) + 4, "text-anchor": "end", class: "tick" }, text));
  }
  for (const value of horizontal.values) {
    svg.append(
      shape("line", { x1: at.x(value), x2: at.x(value), y1: area.bottom, y2: area.bottom + 4, stroke: "var(--muted)" }),
    );
    const text = (x.format ?? plainTick(horizontal.digits))(value);
    svg.append(shape("text", { x: at.x(value), y: area.bottom + 17, "text-anchor": "middle", class: "tick" }, text));
  }
  svg.append(
    shape("line", { x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom, stroke: "var(--muted)" }),
  );
  const middle = (area.top + area.bottom) / 2;
  svg.append(
    shape("text", { x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
    shape("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, y.label),
  );
  const clip = `clip-${container.id}`;
  svg.append(
    shape(
      "clipPath",
      { id: clip },
      shape("rect", {
        x: area.left,
        y: area.top - 6,
        width: area.right - area.left + 8,
        height: area.bottom - area.top + 6,
      }),
    ),
  );
  const inside = shape("g", { "clip-path": `url(#${clip})` });
  svg.append(inside);
  return { svg, inside, context, ...at, width, height, area, invert: inverted(x, y, area) };
}

const plainTick = (digits) => (value) => (Math.abs(value) >= 1000 ? whole(value) : value.toFixed(digits));

/** From pixels to values. */
function inverted(x, y, area) {
  return {
    x: (pixel) => x.min + ((pixel - area.left) / (area.right - area.left)) * (x.max - x.min),
    y: (pixel) => y.min + ((area.bottom - pixel) / (area.bottom - area.top)) * (y.max - y.min),
  };
}

/** The line of a function that keeps its value until the next: points are pixels. */
function stepPath(points) {
  return points
    .map(([x, y], i) => (i ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)},${y.toFixed(1)}`))
    .join("");
}

const linePath = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

/** The marker of a series, so that series differ in shape too. */
function marker(number, x, y, size, attributes = {}) {
  const corners = {
    1: [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ],
    2: [
      [0, -1.3],
      [1.3, 0],
      [0, 1.3],
      [-1.3, 0],
    ],
    3: [
      [0, -1.2],
      [1.2, 1],
      [-1.2, 1],
    ],
    4: [
      [0, 1.2],
      [1.2, -1],
      [-1.2, -1],
    ],
  }[number % 5];
  const look = { fill: `var(--c${number % 7})`, stroke: "var(--paper)", "stroke-width": 1, ...attributes };
  if (!corners) return shape("circle", { cx: x, cy: y, r: size, ...look });
  return shape("path", { d: `${linePath(corners.map(([dx, dy]) => [x + dx * size, y + dy * size]))}Z`, ...look });
}

/** A line and a marker for a legend. */
function swatch(number, withMarker = true) {
  const svg = shape(
    "svg",
    { width: 30, height: 14, "aria-hidden": "true" },
    shape("line", {
      x1: 1,
      x2: 29,
      y1: 7,
      y2: 7,
      stroke: `var(--c${number % 7})`,
      "stroke-width": 2,
      "stroke-dasharray": DASHES[number % 5],
    }),
  );
  if (withMarker) svg.append(marker(number, 15, 7, 3.6));
  return svg;
}
