// Reading a chart: a cursor follows the pointer and the arrow keys, and a tooltip says what is there.

class TrendCursor {
  /** `read(index)` gives {at: 0..1 from the top, facts: texts by name, said, href} of the place `index` of `count`. */
  constructor(place, count, read) {
    Object.assign(this, { place, count, read, index: null });
    this.plot = place.querySelector(".plot");
    this.cursor = place.querySelector(".cursor");
    const text = place.getAttribute("aria-label");
    const slider = { "aria-valuemin": 1, "aria-valuemax": count, "aria-valuenow": count, "aria-valuetext": text };
    for (const [name, value] of Object.entries({ role: "slider", tabindex: 0, ...slider })) {
      place.setAttribute(name, value);
    }
    place.addEventListener("pointermove", (event) => this.follow(event));
    place.addEventListener("pointerdown", (event) => this.follow(event));
    place.addEventListener("pointerleave", () => this.hide());
    place.addEventListener("blur", () => this.hide());
    place.addEventListener("keydown", (event) => this.press(event));
    place.addEventListener("click", (event) => event.pointerType !== "touch" && this.index !== null && this.open());
  }

  follow(event) {
    const box = this.plot.getBoundingClientRect();
    const index = Math.floor(((event.clientX - box.left) / box.width) * this.count);
    if (index < 0 || index >= this.count) this.hide();
    else this.show(index, event.clientX, event.clientY);
  }

  press(event) {
    const last = this.count - 1;
    const now = this.index ?? this.count;
    const next = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageUp: now + 10, PageDown: now - 10, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.hide();
    if (event.key === "Enter" && this.index !== null) this.open();
    if (next === undefined) return;
    event.preventDefault();
    const box = this.plot.getBoundingClientRect();
    const index = Math.min(Math.max(next, 0), last);
    this.show(index, box.left + ((index + 0.5) / this.count) * box.width, box.top + box.height / 2);
  }

  show(index, across, down) {
    this.index = index;
    const { at, facts, said } = this.read(index);
    const x = `${(100 * (index + 0.5)) / this.count}%`;
    const [line, circle] = this.cursor.children;
    for (const name of ["x1", "x2"]) line.setAttribute(name, x);
    circle.setAttribute("cx", x);
    circle.setAttribute("cy", `${100 * Math.min(Math.max(at, 0), 1)}%`);
    this.cursor.setAttribute("visibility", "visible");
    this.place.setAttribute("aria-valuenow", index + 1);
    this.place.setAttribute("aria-valuetext", said);
    tooltip(null, { clientX: across, clientY: down }, null, facts);
  }

  hide() {
    this.index = null;
    this.cursor.setAttribute("visibility", "hidden");
    byId("tooltip").hidden = true;
  }

  open() {
    location.href = this.read(this.index).href;
  }
}
