// The charts over many cases: Vega draws specifications from the page with data from the table.

const MOST_MARKS = 1500;

/** Colour and shape of a backend, the same in every chart of the page. */
function paletteOf(backends, data) {
  return new Map(
    backends.map((name, index) => [
      name,
      { color: data.colours[index % data.colours.length], shape: data.shapes[index % data.shapes.length] },
    ]),
  );
}

/** The charts over many cases. */
class PageCharts {
  constructor(data, table, open) {
    Object.assign(this, { data, table, open });
    this.palette = paletteOf(this.backends(), data);
    this.figures = ["ms", "tflops", "speedup"].filter((name) => `length_${name}` in data.charts);
  }

  /** The backend with the most cases first: it shares its colour with none of the next few. */
  backends() {
    const { words, codes } = this.table.columns.get("backend") ?? { words: [], codes: [] };
    const counts = words.map(() => 0);
    for (const code of codes) counts[code]++;
    const order = words.map((_, code) => code);
    order.sort((a, b) => counts[b] - counts[a] || natural.compare(words[a], words[b]));
    return order.map((code) => words[code]);
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
    return made;
  }

  points(indices, needs) {
    return indices.map((index) => this.point(index)).filter((point) => needs.every((name) => point[name] > 0));
  }

  async draw(order, state) {
    if (!window.vegaEmbed || !byId("charts")) return;
    const drawn = [...order].sort((a, b) => a - b);
    await this.drawLengths(drawn, state);
    await this.drawRoofline(drawn, state);
    await this.drawMany("limits", "limits", drawn, { thresholds: this.data.thresholds });
  }

  async drawMany(name, section, indices, datasets, note = "") {
    const chart = this.data.charts[name];
    const points = chart ? this.points(indices, chart.needs) : [];
    byId(section).hidden = !points.length;
    if (!points.length) return;
    const place = byId(`chart-${name}`);
    const kept = points.slice(0, MOST_MARKS);
    const left = points.length > kept.length ? `The worst ${kept.length} of ${points.length} cases; filter to see others.` : "";
    place.parentElement.querySelector("figcaption").textContent = [left, note].filter(Boolean).join(" ");
    await drawChart(place, chart.spec, { points: kept, ...datasets }, this.options());
  }

  options() {
    return { config: this.data.config, palette: this.palette, opened: this.open };
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

  async drawLengths(indices, state) {
    const groups = this.figures.length ? this.groups(indices) : new Map();
    byId("lengths").hidden = !groups.size;
    if (!groups.size) return;
    const fullest = [...groups].reduce((best, next) => (next[1].length > best[1].length ? next : best))[0];
    const group = groups.has(state.group) ? state.group : fullest;
    const figure = this.figures.includes(state.figure) ? state.figure : this.figures[0];
    fillSelect(byId("length-group"), [...groups.keys()].map((name) => [name, name]), group);
    const titles = this.figures.map((name) => [name, this.data.charts[`length_${name}`].title]);
    fillSelect(byId("length-figure"), titles, figure);
    const chart = this.data.charts[`length_${figure}`];
    const points = this.points(groups.get(group), chart.needs);
    const place = byId("chart-length");
    place.parentElement.querySelector("figcaption").textContent = group;
    const spec = structuredClone(chart.spec);
    spec.encoding.x.axis.values = [...new Set(points.map((point) => point.length))].sort((a, b) => a - b);
    await drawChart(place, spec, { points }, this.options());
    this.drawLengthTable(groups.get(group).map((index) => this.point(index)));
  }

  /** Milliseconds and speedup of each backend at each length, as in the chart; the fastest at the longest first. */
  drawLengthTable(points) {
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
    const over = this.table.rows.reference ? `, speedup over ${this.table.rows.reference} in brackets` : "";
    const caption = element("caption", { textContent: `ms per call by sequence length${over}; the fastest is bold` });
    byId("length-table").replaceChildren(caption, element("thead", {}, head), body);
  }

  async drawRoofline(indices, state) {
    const device = (index) => this.table.text("device", index);
    const devices = [...new Set(indices.filter((index) => this.table.rows.intensity[index]).map(device))];
    const chosen = devices.includes(state.roof) ? state.roof : devices[0];
    fillSelect(byId("roofline-device"), devices.map((name) => [name, name]), chosen);
    byId("roofline-device").closest(".controls").hidden = devices.length < 2;
    const ceilings = Object.hasOwn(this.data.ceilings, chosen) ? this.data.ceilings[chosen] : [];
    const note = ceilings.length
      ? "Solid lines were measured on such a device, dashed ones are its data sheet's."
      : "Ceilings of this device are not known: attnperf doctor --calibrate measures them.";
    await this.drawMany("roofline", "rooflines", indices.filter((index) => device(index) === chosen), { ceilings }, note);
  }
}

function fillSelect(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, textContent]) => element("option", { value, textContent })));
  select.value = chosen ?? "";
}
