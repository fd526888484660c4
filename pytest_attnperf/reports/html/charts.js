// The charts over many cases: Vega draws specifications from the page with data from the table, a family at a time.

const MOST_MARKS = 800;
const OTHERS = "others";
const NARROW = 560;
const LABEL_WIDTH = 150;
const LABEL_GAP = 14;
const MOST_GROUPS = 8;
const MOST_BARS = 10;
const LENGTH_NAMES = ["ms", "tflops", "speedup"];

class PageCharts {
  constructor(data, table, open) {
    Object.assign(this, { data, table, open, palettes: new Map() });
    this.figures = LENGTH_NAMES.filter((name) => `length_${name}` in data.charts);
  }

  /** Colour and shape of a family's backends, the same in all its charts: those with the most cases have their own. */
  palette(family) {
    if (!this.palettes.has(family)) {
      const counts = new Map();
      const { ms } = this.sortsOf("ms");
      this.table.rows.keys.forEach((_, index) => {
        if (this.table.text("family", index) !== family || !ms?.[index]) return;
        const backend = this.table.text("backend", index);
        counts.set(backend, (counts.get(backend) ?? 0) + 1);
      });
      const { reference } = this.table.rows;
      const order = [...counts.keys()].sort((a, b) => (b === reference) - (a === reference) || counts.get(b) - counts.get(a) || natural.compare(a, b));
      this.palettes.set(family, this.coloured(order));
    }
    return this.palettes.get(family);
  }

  coloured(order) {
    const { colours, shapes } = this.data;
    const own = order.length <= colours.length - 1 ? order : order.slice(0, colours.length - 1);
    const found = new Map(own.map((name, index) => [name, { color: colours[index], shape: shapes[index] }]));
    if (own.length < order.length) found.set(OTHERS, { color: colours.at(-1), shape: shapes.at(-1) });
    return found;
  }

  sortsOf(...names) {
    return Object.fromEntries(names.map((name) => [name, this.table.columns.get(name)?.sort]));
  }

  /** One case for charts: each column's text as NAME_text, and its sort value as NAME. */
  point(index) {
    const { rows } = this.table;
    const made = { index, name: rows.keys[index], length: rows.length[index], intensity: rows.intensity[index] };
    for (const column of rows.columns) {
      const text = column.words[column.codes[index]];
      made[column.name] = column.sort ? column.sort[index] : text;
      made[`${column.name}_text`] = text;
    }
    // The heading of the column of times ends with their unit.
    const unit = this.table.columns.get("ms")?.heading.split(" ").at(-1);
    if (unit) made.time_text = `${made.ms_text} ${unit}`;
    made.description = `${made.name}: ${made.time_text ?? "-"}, ${made.verdict_text}`;
    made.mark = markOf(made.verdict_text);
    return made;
  }

  points(indices, needs) {
    return indices.map((index) => this.point(index)).filter((point) => needs.every((name) => point[name] > 0));
  }

  /** Draws one chart after the other, and leaves the browser time for the reader in between; a newer draw ends this. */
  async draw(order, state) {
    if (!window.vegaEmbed || !byId("charts")) return;
    const drawn = [...order].sort((a, b) => a - b);
    const family = this.chooseFamily(drawn, state);
    const own = drawn.filter((index) => this.table.text("family", index) === family);
    const steps = [
      () => this.drawSpeedups(own, family),
      () => this.drawLengths(own, family, state),
      () => this.drawRoofline(own, family, state),
      () => this.drawLimits(drawn),
    ];
    this.latest = steps;
    for (const step of steps) {
      await new Promise((resolve) => setTimeout(resolve));
      if (this.latest !== steps) return;
      await step();
    }
  }

  async drawLimits(drawn) {
    const chart = this.data.charts.limits;
    const points = chart ? this.points(drawn, chart.needs) : [];
    await this.drawMany("limits", "limits", points, { thresholds: this.data.thresholds }, (spec) => timeAxis(spec, points));
  }

  /** The family in the address, else the one with the most timed cases; the select lists all that have any. */
  chooseFamily(drawn, state) {
    const counts = new Map();
    const { ms } = this.sortsOf("ms");
    for (const index of drawn) {
      if (!ms?.[index]) continue;
      const family = this.table.text("family", index);
      counts.set(family, (counts.get(family) ?? 0) + 1);
    }
    const names = [...counts.keys()].sort(natural.compare);
    const chosen = counts.has(state.family) ? state.family : names.reduce((best, next) => (counts.get(next) > (counts.get(best) ?? 0) ? next : best), "");
    fillSelect(byId("chart-family"), names.map((name) => [name, `${name} (${counts.get(name)})`]), chosen);
    byId("chart-family").closest(".controls").hidden = names.length < 2;
    return chosen;
  }

  async drawMany(name, section, points, datasets, prepare, note = "", palette = null) {
    byId(section).hidden = !points.length;
    if (!points.length) return;
    const place = byId(`chart-${name}`);
    const kept = points.slice(0, MOST_MARKS);
    const left = points.length > kept.length ? `The worst ${kept.length} of ${points.length} cases; filter to see others.` : "";
    place.parentElement.querySelector("figcaption").textContent = [note, left].filter(Boolean).join(" ");
    const spec = structuredClone(this.data.charts[name].spec);
    prepare(spec, place.clientWidth || 600);
    await drawChart(place, spec, { points: kept, ...datasets }, { config: this.data.config, palette, opened: this.open });
  }

  /** Points with their series, and labels at the right where the window is wide enough; else a legend names series. */
  labelled(points, palette, [x, y], place, height, domains) {
    for (const point of points) point.series = palette.has(point.backend) ? point.backend : OTHERS;
    const width = place.clientWidth || 600;
    if (width < NARROW) return { labels: [], leaders: [], legend: true };
    const last = new Map();
    for (const point of points) {
      const before = last.get(point.series);
      if (!before || point[x] > before[x] || (point[x] === before[x] && point[y] > before[y])) last.set(point.series, point);
    }
    const ends = [...last.values()];
    const [across, up] = [logPlaces(domains[0]), logPlaces(domains[1])];
    const right = 1 - LABEL_WIDTH / (width - 60);
    domains[0][1] = across.from(1 + LABEL_WIDTH / (width - 60 - LABEL_WIDTH));
    const room = logPlaces(domains[0]);
    const moved = spread(ends.map((end) => up.to(end[y])), LABEL_GAP / height);
    const at = room.from(right);
    const labels = ends.map((end, index) => ({ series: end.series, label: shortened(end.series, 22), [x]: at, [y]: up.from(moved[index]) }));
    const leaders = ends.flatMap((end, index) => [{ series: end.series, [x]: end[x], [y]: end[y] }, labels[index]]);
    return { labels, leaders, legend: false };
  }

  /** Groups of workloads that differ only in length: each with its drawn rows. */
  groups(indices) {
    const { group, groups } = this.table.rows;
    const found = new Map();
    for (const index of indices) {
      if (group[index] === null) continue;
      const name = groups[group[index]];
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(index);
    }
    return new Map([...found].sort(([a], [b]) => natural.compare(a, b)));
  }

  async drawLengths(indices, family, state) {
    const groups = this.figures.length ? this.groups(indices) : new Map();
    byId("lengths").hidden = !groups.size;
    if (!groups.size) return;
    const fullest = [...groups].reduce((best, next) => (next[1].length > best[1].length ? next : best))[0];
    const group = groups.has(state.group) ? state.group : fullest;
    const figure = this.figures.includes(state.figure) ? state.figure : this.figures[0];
    fillSelect(byId("length-group"), [...groups.keys()].map((name) => [name, name]), group);
    const titles = this.figures.map((name) => [name, this.data.charts[`length_${name}`].title]);
    fillSelect(byId("length-figure"), titles, figure);
    await this.drawLength(groups.get(group), group, figure, this.palette(family));
    drawLengthTable(groups.get(group).map((index) => this.point(index)), this.table.rows.reference, this.table.columns.get("ms").heading);
  }

  async drawLength(indices, group, figure, palette) {
    const chart = this.data.charts[`length_${figure}`];
    const points = this.points(indices, chart.needs);
    const place = byId("chart-length");
    place.parentElement.querySelector("figcaption").textContent = group;
    const spec = structuredClone(chart.spec);
    const domains = [logDomain(points.map((point) => point.length), 0.03), logDomain(points.map((point) => point[figure]))];
    const ticks = logTicks(...domains[1]);
    const { legend, ...named } = this.labelled(points, palette, ["length", figure], place, spec.height, domains);
    const lengths = [...new Set(points.map((point) => point.length))].sort((a, b) => a - b);
    setAxes(spec, { length: [domains[0], lengths], [figure]: [domains[1], ticks] }, legend);
    await drawChart(place, spec, { points, ...named }, { config: this.data.config, palette, opened: this.open });
  }

  async drawRoofline(indices, family, state) {
    const device = (index) => this.table.text("device", index);
    const devices = [...new Set(indices.filter((index) => this.table.rows.intensity[index]).map(device))];
    const chosen = devices.includes(state.roof) ? state.roof : devices[0];
    fillSelect(byId("roofline-device"), devices.map((name) => [name, name]), chosen);
    byId("roofline-device").closest(".controls").hidden = devices.length < 2;
    const chart = this.data.charts.roofline;
    const points = chart ? this.points(indices.filter((index) => device(index) === chosen), chart.needs) : [];
    byId("rooflines").hidden = !points.length;
    if (!points.length) return;
    const all = ceilingsFor(Object.hasOwn(this.data.ceilings, chosen) ? this.data.ceilings[chosen] : [], points);
    const place = byId("chart-roofline");
    const { ceilings, roofs, unnamed, domains } = roofsOver(all, points, chart.spec.height);
    const ticks = domains.map((domain) => logTicks(...domain, place.clientWidth < NARROW ? 5 : 8));
    const { legend, ...named } = this.labelled(points, this.palette(family), ["intensity", "tflops"], place, chart.spec.height, domains);
    const note = all.length
      ? `Solid lines were measured on such a device, dashed ones are its data sheet's.${unnamed.length ? ` Close to others, and so without a name: ${unnamed.join("; ")}.` : ""}`
      : "Ceilings of this device are not known: attnperf doctor --calibrate measures them.";
    const prepare = (spec) => setAxes(spec, { intensity: [domains[0], ticks[0]], tflops: [domains[1], ticks[1]] }, legend);
    await this.drawMany("roofline", "rooflines", points, { ceilings, roofs, ...named }, prepare, note, this.palette(family));
  }

  /** Bars of the workloads with the most backends, the fastest first, each workload under its name. */
  async drawSpeedups(indices, family) {
    const chart = this.data.charts.speedups;
    const { reference } = this.table.rows;
    const points = chart ? this.points(indices, chart.needs).filter((point) => point.backend !== reference) : [];
    byId("speedups").hidden = !points.length;
    if (!points.length) return;
    const groups = new Map();
    for (const point of points) {
      const name = [point.device_text, point.suite_text, point.workload].filter(Boolean).join(" ");
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(point);
    }
    const fullest = [...groups].sort(([, a], [, b]) => b.length - a.length).slice(0, MOST_GROUPS);
    const kept = fullest.sort(([a], [b]) => natural.compare(a, b)).map(([, group]) => group);
    const { bars, heads, title } = speedupSlots(kept, this.palette(family), byId("chart-speedups").clientWidth);
    const left = points.length - bars.length;
    const note = `${title}${left ? ` ${left} more bars are left out: filter to see them.` : ""}`;
    const prepare = (spec, width) => {
      const slots = [...heads, ...bars].map(({ slot }) => slot).sort();
      spec.height = 17 * slots.length;
      const end = Math.max(1, ...bars.map((bar) => bar.speedup)) / (1 - Math.min(0.4, 50 / Math.max(60, width - 170)));
      const ticks = linearTicks(0, end, width < NARROW ? 4 : 8);
      // The line at one has its tick, unless that would touch the one at zero.
      if (ticks[1] <= 4) ticks.push(1);
      setAxes(spec, { speedup: [[0, end], [...new Set(ticks)].sort((a, b) => a - b)] }, false);
      for (const layer of spec.layer) if (layer.encoding.y) Object.assign(layer.encoding.y.scale, { domain: slots });
    };
    await this.drawMany("speedups", "speedups", bars, { heads }, prepare, note, this.palette(family));
  }
}

/** Numbered places of bars and of the names above them. */
function speedupSlots(groups, palette, width) {
  const { shared, own } = splitNames(groups.map((group) => group[0].workload));
  const [bars, heads] = [[], []];
  const most = width < NARROW ? 16 : 26;
  const slot = (text) => `${String(heads.length + bars.length).padStart(3, "0")} ${text}`;
  groups.forEach((group, at) => {
    heads.push({ slot: slot(""), label: shortened(own[at], width < NARROW ? 24 : 80) });
    for (const point of group.sort((a, b) => b.speedup - a.speedup).slice(0, MOST_BARS)) {
      bars.push({ ...point, slot: slot(shortened(point.backend, most)), series: palette.has(point.backend) ? point.backend : OTHERS });
    }
  });
  return { bars, heads, title: shared ? `All are ${shared}.` : "" };
}

/** Ceilings of the dtypes that occur in the points' workloads, and of memory; all where no dtype is known. */
function ceilingsFor(all, points) {
  const words = new Set(points.flatMap(({ workload }) => workload.split("-")));
  const own = all.filter(({ name, slanted }) => slanted || words.has(name.split(" ")[0]));
  return own.some(({ slanted }) => !slanted) ? own : all;
}

/** Ceilings, the labels that have room, and the domains of both axes: those of the points and of the roofs' corners. */
function roofsOver(all, points, height) {
  const [xs, ys] = [logDomain(points.map((point) => point.intensity)), logDomain(points.map((point) => point.tflops))];
  const corners = all.filter(({ label, slanted }) => label && !slanted).map(({ x }) => x).filter((x) => x < xs[1] * 30);
  const across = corners.length ? logDomain([...xs, ...corners.map((x) => x * 3)]) : xs;
  const up = [ys[0], Math.max(ys[1], ...all.map(({ y }) => y)) * 1.5];
  const taken = [];
  const roofs = [];
  const unnamed = [];
  for (const line of all.filter(({ label }) => label)) {
    const x = line.slanted ? Math.max(across[0], (up[0] * 1.3 * line.x) / line.y) : across[1];
    const y = line.slanted ? (line.y * x) / line.x : line.y;
    // Above a flat line, where no point can be for long; below a slanted one, which rises from its label.
    const place = logPlaces(up).to(y) * height + (line.slanted ? -9 : 9);
    const hidden = taken.some((other) => Math.abs(other - place) < 15);
    if (!hidden) taken.push(place);
    if (hidden) unnamed.push(line.label);
    else roofs.push({ ...line, x, y });
  }
  // Lines end where names of series begin.
  const ceilings = all.map((line) => (line.slanted ? line : { ...line, x: Math.min(line.x, across[1]) }));
  return { ceilings, roofs, unnamed, domains: [across, up] };
}

/** Sets domains and ticks of the fields' axes wherever they are encoded, and drops legends that labels replace. */
function setAxes(spec, axes, legend) {
  const walk = (node) => {
    for (const [key, child] of Object.entries(node ?? {})) {
      if (!child || typeof child !== "object") continue;
      const [domain, values] = axes[child.field] ?? axes[{ x: "intensity", y: "tflops" }[child.field]] ?? [];
      if (domain && (key === "x" || key === "y")) {
        child.scale = { ...child.scale, domain, nice: false };
        if (child.axis) child.axis = { ...child.axis, values };
      }
      if ((key === "color" || key === "shape") && child.field === "series") child.legend = legend ? { title: null, orient: "top" } : null;
      walk(child);
    }
  };
  walk(spec.layer);
}

function timeAxis(spec, points) {
  const domain = logDomain(points.map((point) => point.ms), 0.03);
  setAxes(spec, { ms: [domain, logTicks(...domain)] }, false);
}

/** Milliseconds and speedup of each backend at each length, as in the chart; the fastest at the longest first. */
function drawLengthTable(points, reference, heading) {
  const lengths = [...new Set(points.map((point) => point.length))].sort((a, b) => a - b);
  const found = new Map(points.map((point) => [`${point.length} ${point.backend}`, point]));
  const ms = (backend, length) => found.get(`${length} ${backend}`)?.ms || Infinity;
  const longest = lengths.at(-1);
  const backends = [...new Set(points.map((point) => point.backend))];
  backends.sort((a, b) => (ms(a, longest) < ms(b, longest) ? -1 : ms(a, longest) > ms(b, longest) ? 1 : natural.compare(a, b)));
  const head = element("tr", {}, element("th", { scope: "col", textContent: "backend" }));
  for (const length of lengths) head.append(element("th", { scope: "col", className: "number", textContent: String(length) }));
  const fastest = new Map(lengths.map((length) => [length, Math.min(...backends.map((backend) => ms(backend, length)))]));
  const body = element("tbody");
  for (const backend of backends) {
    const row = element("tr", {}, element("th", { scope: "row", textContent: backend }));
    for (const length of lengths) {
      const point = found.get(`${length} ${backend}`);
      const speedup = point?.speedup_text && point.speedup_text !== "-" ? ` (${point.speedup_text})` : "";
      const cell = element("td", { className: "number", textContent: point ? `${point.ms_text}${speedup}` : "-" });
      if (point && point.ms === fastest.get(length)) cell.classList.add("fastest");
      row.append(cell);
    }
    body.append(row);
  }
  const over = reference ? `, speedup over ${reference} in brackets` : "";
  const caption = element("caption", { textContent: `${heading} by sequence length${over}; the fastest is bold` });
  byId("length-table").replaceChildren(caption, element("thead", {}, head), body);
}

function fillSelect(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, textContent]) => element("option", { value, textContent })));
  select.value = chosen ?? "";
}
