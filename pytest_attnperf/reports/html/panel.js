// The panel of one case: its words and tables as blocks, and its charts.

const CHARTS_BEHIND = "Figures";

class CasePanel {
  constructor(data, table) {
    Object.assign(this, { data, table, lines: null, index: null });
    this.dialog = byId("case");
  }

  /** Lines of the packed details by row and kind: 't' for words, 's' for samples. */
  async details() {
    if (this.lines === null) {
      this.lines = new Map();
      for (const line of (await inflated(byId("details").textContent)).split("\n")) {
        const start = /^\[(\d+),"([ts])",/.exec(line);
        if (start) this.lines.set(start[2] + start[1], line);
      }
    }
    return this.lines;
  }

  async detail(kind, index) {
    const line = (await this.details()).get(kind + index);
    return line === undefined ? null : JSON.parse(line)[2];
  }

  async show(index) {
    this.index = index;
    const key = this.table.rows.keys[index];
    byId("case-title").replaceChildren(verdictMark(this.table.text("verdict", index)), " ", key);
    const at = this.table.order.indexOf(index);
    byId("case-previous").disabled = at <= 0;
    byId("case-next").disabled = at < 0 || at >= this.table.order.length - 1;
    if (!this.dialog.open) this.dialog.showModal();
    document.body.classList.add("case-open");
    byId("case-title").focus();
    const [words, samples] = [await this.detail("t", index), await this.detail("s", index)];
    if (this.index !== index) return;
    this.layOut(words, index);
    this.dialog.scrollTop = 0;
    await this.drawCharts(samples);
  }

  close() {
    this.index = null;
    document.body.classList.remove("case-open");
    if (this.dialog.open) this.dialog.close();
  }

  /** The row `by` places further on in the table's order. */
  neighbour(by) {
    return this.table.order[this.table.order.indexOf(this.index) + by];
  }

  layOut(words, index) {
    const body = byId("case-body");
    if (words === null) {
      const text = "To keep this file small, it holds only this row of the case; results.json has the rest.";
      const facts = this.table.rows.columns.map((column) => [column.heading, this.table.text(column.name, index)]);
      body.replaceChildren(element("p", { className: "left-out", textContent: text }), factList(facts), chartPlace());
      return;
    }
    body.replaceChildren(element("p", { className: "summary", textContent: words.summary }));
    const strip = element("div", { className: "charts", id: "case-strip" });
    body.append(strip);
    for (const block of words.blocks) {
      body.append(laidOut(block));
      if (block.heading === CHARTS_BEHIND) body.append(chartPlace());
    }
  }

  async drawCharts(samples) {
    const place = byId("case-charts") ?? byId("case-body").appendChild(chartPlace());
    if (samples === null) {
      place.append(element("p", { className: "left-out", textContent: "Samples are in results.json: they were left out to keep this file small." }));
      return;
    }
    const datasets = caseDatasets(samples);
    for (const [name, chart] of Object.entries(this.data.caseCharts)) {
      const missing = chart.needs.some((need) => !datasets[need]?.length);
      if (missing || (chart.unless ?? []).some((other) => datasets[other]?.length)) continue;
      const target = element("div", { className: "chart" });
      const figure = element("figure", {}, element("h3", { textContent: chart.title }), target);
      (name.startsWith("strip") ? byId("case-strip") ?? place : place).append(figure);
      if (window.vegaEmbed) await drawChart(target, chart.spec, datasets, { config: this.data.config });
    }
  }
}

/** Data sets of a case's charts: one entry per block, numbered over all processes; every one named, if empty. */
function caseDatasets(samples) {
  const found = { dots: [], marks: [], points: [], changes: [], ...samples, blocks: [], clocks: [] };
  for (const process of samples.blocks ?? []) {
    process.us.forEach((us, index) => {
      const mhz = process.mhz[index] ?? null;
      const block = found.blocks.length + 1;
      const clock = mhz === null ? "" : `, ${mhz} MHz`;
      const description = `${process.name}, block ${block}: ${us} us${clock}`;
      found.blocks.push({ block, us, mhz, process: process.name, name: process.name, look: process.look, description });
    });
  }
  found.clocks = found.blocks.filter((block) => block.mhz !== null);
  const rows = [...found.dots.map((dot) => dot.row), ...found.marks.map((mark) => mark.kind).filter((kind) => kind === "change")];
  found.rows = [...new Set(rows)].map((row) => ({ row }));
  for (const dot of found.dots) dot.description = `${dot.name}: ${dot.text}`;
  for (const point of found.points) point.description = `${point.started}, ${point.commit}: ${point.text}`;
  return found;
}

const chartPlace = () => element("div", { className: "charts", id: "case-charts" });

function factList(facts) {
  const list = element("dl", { className: "facts" });
  for (const [name, value] of facts) {
    list.append(element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value })));
  }
  return list;
}

function laidOut(block) {
  const made = element("section", {}, element("h3", { textContent: block.heading }));
  if (block.kind === "lines") made.append(bullets(block.lines));
  if (block.kind === "text") made.append(element("pre", { tabIndex: 0, textContent: block.lines.join("\n") }));
  if (block.kind === "facts") made.append(factList(block.facts));
  if (block.kind === "command") made.append(commandBox(block.text));
  if (block.kind === "table") made.append(...tableOf(block));
  return made;
}

const bullets = (lines) => element("ul", {}, ...lines.map((textContent) => element("li", { textContent })));

function tableOf(block) {
  const head = element("tr", {}, ...block.head.map((textContent) => element("th", { scope: "col", textContent })));
  const rows = block.rows.map((texts) =>
    element("tr", {}, ...texts.map((textContent, at) => (at ? element("td", { textContent }) : element("th", { scope: "row", textContent })))),
  );
  const caption = element("caption", { className: "hidden-caption", textContent: block.heading });
  const table = element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...rows));
  const frame = element("div", { className: "wide", tabIndex: 0, attributes: { role: "region", "aria-label": block.heading } }, table);
  const more = block.more ? element("p", { textContent: block.more }) : null;
  return [frame, more, block.notes?.length ? bullets(block.notes) : null].filter(Boolean);
}

function commandBox(text) {
  const pre = element("pre", { textContent: text, tabIndex: 0 });
  const button = element("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text, pre)) ? "Copied" : "Selected: press Ctrl+C";
  });
  return element("div", { className: "command" }, pre, button);
}

/** A browser may have no clipboard for a page from a disk: then the text is selected. */
async function copied(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(place);
    return false;
  }
}
