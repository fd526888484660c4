// The table of all cases: filtered, sorted, and added page by page.

const PAGE_ROWS = 100;
const natural = new Intl.Collator("en", { numeric: true });

class CaseTable {
  constructor(rows, open) {
    this.rows = rows;
    this.open = open;
    this.columns = new Map(rows.columns.map((column) => [column.name, column]));
    this.shownRows = PAGE_ROWS;
    // Every shown word of a row is searched, and its key.
    this.haystacks = rows.keys.map((key, index) => `${key} ${this.text("verdict", index)}`.toLowerCase());
    this.order = [];
  }

  /** What rows are sorted by. Words are compared when they are first asked for. */
  ranksOf(column) {
    column.ranks ??= column.sort ?? this.wordRanks(column);
    return column.ranks;
  }

  wordRanks(column) {
    const sorted = column.words.map((_, code) => code).sort((a, b) => natural.compare(column.words[a], column.words[b]));
    const ranks = [];
    sorted.forEach((code, rank) => (ranks[code] = rank));
    return column.codes.map((code) => ranks[code]);
  }

  text(name, index) {
    const column = this.columns.get(name);
    return column ? column.words[column.codes[index]] : "";
  }

  /** Indices of the rows that match the filters, in sorted order. */
  selected(state) {
    const terms = (state.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const verdicts = new Set((state.verdict ?? "").split(";").filter(Boolean));
    const exact = ["device", "suite", "backend"].filter((name) => state[name] && this.columns.has(name));
    const found = [];
    for (let index = 0; index < this.haystacks.length; index++) {
      if (verdicts.size && !verdicts.has(this.text("verdict", index))) continue;
      if (exact.some((name) => this.text(name, index) !== state[name])) continue;
      if (terms.every((term) => this.haystacks[index].includes(term))) found.push(index);
    }
    return this.sorted(found, state.sort);
  }

  sorted(indices, by) {
    const column = this.columns.get((by ?? "").replace(/^-/, ""));
    if (!column) return indices;
    const sign = by.startsWith("-") ? -1 : 1;
    const ranks = this.ranksOf(column);
    // Rows without a figure come last in both directions.
    return indices.sort((a, b) => {
      if (ranks[a] === null || ranks[b] === null) return (ranks[a] === null) - (ranks[b] === null) || a - b;
      return sign * (ranks[a] - ranks[b]) || a - b;
    });
  }

  draw(state) {
    this.order = this.selected(state);
    this.shownRows = PAGE_ROWS;
    byId("table").tBodies[0].replaceChildren();
    this.addRows(0);
    this.drawHeads(state.sort);
    byId("count").textContent = `${this.order.length} of ${this.rows.keys.length}`;
  }

  addRows(from) {
    const part = document.createDocumentFragment();
    for (const index of this.order.slice(from, this.shownRows)) part.append(this.row(index));
    byId("table").tBodies[0].append(part);
    const left = this.order.length - this.shownRows;
    byId("more").hidden = left <= 0;
    byId("more").textContent = `Show ${Math.min(left, PAGE_ROWS)} more of ${left}`;
  }

  more() {
    const from = this.shownRows;
    this.shownRows += PAGE_ROWS;
    this.addRows(from);
    byId("table").tBodies[0].rows[from]?.querySelector("button")?.focus();
  }

  row(index) {
    const made = element("tr", { className: this.rows.fails[index] ? "fails" : "", attributes: { role: "row" } });
    for (const column of this.rows.columns) {
      if (column.hidden) continue;
      const text = column.words[column.codes[index]];
      if (column.name === "workload") {
        const button = element("button", { type: "button", className: "name", textContent: text });
        button.setAttribute("aria-haspopup", "dialog");
        button.addEventListener("click", () => this.open(index));
        made.append(element("th", { scope: "row", className: "cell-workload", attributes: { role: "rowheader" } }, button));
      } else {
        const className = `cell-${column.name}${column.sort && column.name !== "verdict" ? " number" : ""}${text === "-" ? " absent" : ""}`;
        const content = column.name === "verdict" ? [verdictMark(text)] : [this.sparkline(column, index), text];
        made.append(element("td", { className, attributes: { role: "cell", "data-heading": column.heading } }, ...content));
      }
    }
    return made;
  }

  /** The history of a row as a line, in front of its last change; null elsewhere. */
  sparkline(column, index) {
    const heights = column.name === "history" ? this.rows.sparklines[index] : undefined;
    if (!heights) return null;
    const [width, most] = [64, 20];
    const step = width / Math.max(1, heights.length - 1);
    const points = heights.map((height, at) => `${(2 + at * step).toFixed(1)} ${most - height + 2}`);
    const last = points.at(-1).split(" ");
    return svgElement("svg", { class: "sparkline", width: 70, height: 24, viewBox: "0 0 70 24", "aria-hidden": "true" }, [
      svgElement("path", { d: `M${points.join("L")}` }),
      svgElement("circle", { cx: last[0], cy: last[1], r: 2.5 }),
    ]);
  }

  /** Makes headings buttons. A first click sorts figures from the largest, and texts alphabetically. */
  makeHeads(changed) {
    for (const head of byId("table").tHead.rows[0].cells) {
      const { name, sort } = this.columns.get(head.dataset.column);
      const button = element("button", { type: "button", textContent: head.textContent });
      const first = sort && name !== "verdict" ? [`-${name}`, name] : [name, `-${name}`];
      button.addEventListener("click", () => changed(readState().sort === first[0] ? first[1] : first[0]));
      head.replaceChildren(button);
    }
  }

  drawHeads(by) {
    for (const head of byId("table").tHead.rows[0].cells) {
      const mine = (by ?? "").replace(/^-/, "") === head.dataset.column;
      if (mine) head.setAttribute("aria-sort", by.startsWith("-") ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }
}

function svgElement(tag, attributes, children = []) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function verdictMark(text) {
  const made = element("span", { className: "verdict", textContent: text });
  made.dataset.verdict = text;
  return made;
}
