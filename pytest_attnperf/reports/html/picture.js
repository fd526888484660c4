// The first picture: every gated case by its change, the slowest first; or times, where nothing was gated.

const DOT_WIDTH = 7;
const REST_STEPS = 60;
const REST_LABEL_WIDTH = 70;
const LINEAR_MOST = 25;
const ROWS_MOST = 24;
const CHANGE_TICKS = [-90, -50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5, 1e6];

/** The verdict that a dot stands for: what is quarantined has a mark of its own. */
const markOf = (text) => (text.endsWith(", quarantined") ? "quarantined" : text.split(",")[0]);

class FirstPicture {
  constructor(data, table, charts, open) {
    Object.assign(this, { picture: table.rows.picture, data, table, charts, open });
  }

  async draw() {
    const place = byId("chart-picture");
    if (!place || !this.picture || !window.vegaEmbed) return;
    const made = this.picture.kind === "changes" ? this.changes(place.clientWidth) : this.times(place.clientWidth);
    byId("picture-caption").textContent = made.caption;
    await drawChart(place, made.spec, made.datasets, { config: this.data.config, opened: this.open });
  }

  point(index) {
    const made = this.charts.point(index);
    return { ...made, mark: markOf(made.verdict_text) };
  }

  /** Indices of cases with a change, the slowest first. */
  ranked() {
    const { change } = this.picture;
    const known = [...change.keys()].filter((index) => change[index] !== null);
    return known.sort((a, b) => change[b] - change[a] || a - b);
  }

  changes(width) {
    const ranked = this.ranked();
    const room = Math.max(24, Math.floor((width - 60) / DOT_WIDTH));
    const cut = ranked.length > room;
    const slots = Math.max(8, Math.round(room / 4));
    const head = cut ? Math.ceil((room - slots) * 0.6) : ranked.length;
    const tail = cut ? room - slots - head : 0;
    const rest = cut ? ranked.slice(head, ranked.length - tail) : [];
    const first = ranked.slice(0, head);
    const last = cut ? ranked.slice(ranked.length - tail) : [];
    const points = [...first.map((index, at) => this.changed(index, at)), ...last.map((index, at) => this.changed(index, head + slots + at))];
    const { band, steps, label } = this.restOf(rest, head, slots);
    const whole = head + tail + (cut ? slots : 0);
    const shaded = this.bandOf(points, band, whole);
    const datasets = { points, rest: steps, labels: [...label, ...this.limitLabel(shaded, room)], band: shaded };
    const spec = structuredClone(this.picture.spec);
    // Few cases stand in the middle, and not far apart.
    const least = Math.min(room, Math.max(whole, 12));
    spec.encoding.x.scale.domain = [(whole - least) / 2 - 0.8, (whole + least) / 2 - 0.2];
    this.scaleChanges(spec, datasets);
    return { spec, datasets, caption: this.changesCaption(ranked.length, rest) };
  }

  changed(index, at) {
    const { change, low, high, limit } = this.picture;
    const made = { ...this.point(index), at, change: change[index], limit: limit[index] };
    return { ...made, low: low[index] ?? change[index], high: high[index] ?? change[index] };
  }

  /** The many in the middle: steps with the span of their intervals, and the median limit. */
  restOf(rest, start, slots) {
    if (!rest.length) return { band: [], steps: [], label: [] };
    const { change, low, high, limit } = this.picture;
    const count = Math.min(REST_STEPS, rest.length);
    const steps = [];
    for (let step = 0; step < count; step++) {
      const part = rest.slice(Math.floor((step * rest.length) / count), Math.floor(((step + 1) * rest.length) / count));
      const middle = change[part[Math.floor(part.length / 2)]];
      const at = start + 0.5 + ((slots - 2) * (step + 0.5)) / count;
      const lows = part.map((index) => low[index] ?? change[index]).sort((a, b) => a - b);
      const highs = part.map((index) => high[index] ?? change[index]).sort((a, b) => a - b);
      const half = Math.floor(part.length / 2);
      steps.push({ at, change: middle, low: lows[half], high: highs[half] });
    }
    const limits = rest.map((index) => limit[index]).filter((value) => value !== null).sort((a, b) => a - b);
    const usual = limits[Math.floor(limits.length / 2)] ?? null;
    // The text stands above what it covers of the path.
    const reach = (REST_LABEL_WIDTH / (slots * DOT_WIDTH)) * count / 2;
    const under = steps.slice(Math.max(0, Math.floor(count / 2 - reach)), Math.ceil(count / 2 + reach) + 1);
    const label = [{ at: start + (slots - 1) / 2, change: Math.max(...under.map((step) => step.high)), label: `${rest.length} more` }];
    return { band: steps.map(({ at }) => ({ at, limit: usual })), steps, label };
  }

  /** The limits as a band: a case is FASTER below the inverse of the limit above which it is SLOWER. */
  bandOf(points, rest, whole) {
    const known = [...points, ...rest].filter(({ limit }) => limit > -100 && limit !== null).sort((a, b) => a.at - b.at);
    if (!known.length) return [];
    const edge = (at, { limit }) => ({ at, low: 100 / (1 + limit / 100) - 100, high: limit });
    return [edge(-0.8, known[0]), ...known.map((each) => edge(each.at, each)), edge(whole - 0.2, known.at(-1))];
  }

  /** The band's name above its right end, where the fastest cases leave room. */
  limitLabel(shaded, room) {
    const end = shaded.at(-1);
    return end ? [{ at: end.at - Math.max(shaded.length * 0.03, room * 0.02), change: end.high, label: "limit" }] : [];
  }

  /** Linear for small changes; one large change must not hide the small ones. */
  scaleChanges(spec, { points, rest, band }) {
    const [low, high] = extent([...points, ...rest, ...band].flatMap((each) => [each.low, each.high]));
    const axis = spec.encoding.y.axis;
    const room = (high - low) * 0.05 || 1;
    const scale = { domain: [low - room, high + room * 1.6], nice: false, zero: false };
    axis.values = linearTicks(...scale.domain);
    if (Math.max(-low, high) > LINEAR_MOST) {
      Object.assign(scale, { type: "symlog", constant: 5, domain: [low * 1.1 - 1, high * 1.25 + 1] });
      axis.values = CHANGE_TICKS.filter((tick) => tick >= scale.domain[0] && tick <= scale.domain[1]);
    }
    // A scale that layers share is merged from all of them: only equal ones keep it.
    const walk = (node) => {
      if (node?.y?.type === "quantitative") Object.assign(node.y, { scale, axis: { ...node.y.axis, values: axis.values } });
      for (const child of Object.values(node ?? {})) if (child && typeof child === "object") walk(child);
    };
    walk({ encoding: spec.encoding, layer: spec.layer });
  }

  changesCaption(known, rest) {
    const { rows } = this.table;
    const parts = [`${known} case${known === 1 ? "" : "s"} by change, the slowest first; lines are 95 % intervals, and only above the shaded band is a case slower.`];
    if (rest.length) parts.push(`Left out as dots: ${countWords(rest, this.table)}; the grey path is their change.`);
    const others = [...rows.keys.keys()].filter((index) => this.picture.change[index] === null);
    if (others.length) parts.push(`Without a change: ${countWords(others, this.table)}.`);
    return parts.join(" ");
  }

  times(width) {
    const { value, row, names, unit } = this.picture;
    const logarithmic = unit !== "%";
    const known = [...value.keys()].filter((index) => value[index] > 0);
    const kept = this.fullestRows(known);
    const narrow = width < 500;
    const spec = structuredClone(this.picture.spec);
    const [, high] = extent(known.map((index) => value[index]));
    const domain = logarithmic ? logDomain(known.map((index) => value[index])) : [0, Math.max(100, high)];
    // Room for the median of each row.
    const end = logarithmic ? (domain[1] / domain[0]) ** (narrow ? 0.4 : 0.14) * domain[1] : domain[1] * (narrow ? 1.4 : 1.12);
    // Numbered: two names may be equal once they are short.
    const named = (code) => `${String(code).padStart(4, "0")} ${shortened(names[code], narrow ? 16 : 34)}`;
    const seen = new Set();
    const place = logarithmic ? logPlaces(domain).to : (at) => at / domain[1];
    const points = [];
    for (const index of known) {
      const spot = `${row[index]} ${Math.round((place(value[index]) * width) / 3)}`;
      if (!kept.includes(row[index]) || seen.has(spot)) continue;
      seen.add(spot);
      points.push({ ...this.point(index), value: value[index], row: named(row[index]) });
    }
    const labels = kept.map((code) => ({ row: named(code), label: this.medianOf(known.filter((index) => row[index] === code)) }));
    const axis = { values: logarithmic ? logTicks(...domain, narrow ? 5 : 10) : linearTicks(0, domain[1], 6), labelExpr: timeLabel(unit) };
    spec.height = Math.max(60, kept.length * Math.min(34, Math.max(18, 400 / kept.length)));
    const [dots] = spec.layer;
    Object.assign(dots.encoding.x, { axis: { ...dots.encoding.x.axis, ...axis }, scale: { type: logarithmic ? "log" : "linear", domain: [domain[0], end], nice: false, zero: false } });
    for (const { encoding } of spec.layer) encoding.y.scale = { domain: kept.map(named) };
    const caption = this.timesCaption(known, kept, points);
    return { spec, datasets: { points, labels }, caption };
  }

  fullestRows(known) {
    const { row, names } = this.picture;
    const counts = names.map(() => 0);
    for (const index of known) counts[row[index]]++;
    const order = [...counts.keys()].filter((code) => counts[code]).sort((a, b) => counts[b] - counts[a] || a - b);
    return order.slice(0, ROWS_MOST).sort((a, b) => a - b);
  }

  medianOf(indices) {
    const sorted = indices.map((index) => this.picture.value[index]).sort((a, b) => a - b);
    const middle = sorted[Math.floor(sorted.length / 2)];
    return `${sorted.length} · ${figureText(middle, this.picture.unit)}`;
  }

  timesCaption(known, kept, points) {
    const { names, row } = this.picture;
    const parts = ["A dot is a case; at the right, the number of cases and their median."];
    const rows = new Set(known.map((index) => row[index])).size;
    const inside = known.filter((index) => kept.includes(row[index])).length;
    if (inside > points.length) parts.push(`Left out at the place of another: ${inside - points.length}.`);
    if (rows > kept.length) parts.push(`Left out, with fewer cases: ${rows - kept.length} more rows.`);
    const others = [...row.keys()].filter((index) => !(this.picture.value[index] > 0));
    if (others.length) parts.push(`Without this figure: ${countWords(others, this.table)}.`);
    return parts.join(" ");
  }
}

/** Counts of cases by their verdict: '3 slower, 40 same'. */
function countWords(indices, table) {
  const counts = new Map();
  for (const index of indices) {
    const word = table.text("verdict", index).toLowerCase().replaceAll("_", " ");
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => `${count} ${word}`).join(", ");
}

function figureText(value, unit) {
  if (unit === "%") return `${Math.round(value)} %`;
  if (unit === "x") return `${value < 10 ? value.toFixed(2) : value.toFixed(1)}x`;
  return value < 1000 ? `${Number(value.toPrecision(3))} us` : value < 1e6 ? `${Number((value / 1e3).toPrecision(3))} ms` : `${Number((value / 1e6).toPrecision(3))} s`;
}

function timeLabel(unit) {
  if (unit === "us") return "format(datum.value / 1000000, '~s') + 's'";
  return `format(datum.value, '~g') + '${unit === "%" ? "" : "x"}'`;
}
