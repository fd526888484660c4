// Ticks that a person would choose, names that fit, and labels that do not overlap.

/** Ticks of a logarithmic axis: 1, 2, 5 of each decade, or whole powers where these would be too many. */
function logTicks(low, high, most = 8) {
  if (!(low > 0) || !(high >= low)) return [];
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const choices = [[1, 2, 5], [1, 3], [1]];
  for (const digits of choices) {
    const ticks = [];
    for (let power = first; power <= last; power++) for (const digit of digits) ticks.push(Number(`${digit}e${power}`));
    const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    if (inside.length <= most && inside.length > 1) return inside;
    if (digits.length === 1 && inside.length > 1) return inside.filter((_, at) => at % Math.ceil(inside.length / most) === 0);
  }
  return linearTicks(low, high, most);
}

/** Ticks of a linear axis, 1, 2 or 5 times a power of ten apart. */
function linearTicks(low, high, most = 6) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => span / each <= most) ?? 10 * power;
  const ticks = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}

/** Domain of a logarithmic axis around values, with room at both ends. */
function logDomain(values, room = 0.06) {
  const known = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!known.length) return [1, 10];
  const [low, high] = extent(known);
  const factor = low === high ? 1.5 : (high / low) ** room;
  return [low / factor, high * factor];
}

/** Smallest and largest: a spread of ten thousand arguments may be too many. */
const extent = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

/** Places along a logarithmic axis, 0 to 1, and back. */
function logPlaces([low, high]) {
  const span = Math.log(high / low);
  return { to: (value) => Math.log(value / low) / span, from: (place) => low * Math.exp(place * span) };
}

/** Moves places (0 to 1), in their order, until they are `gap` apart and inside. */
function spread(places, gap) {
  const order = places.map((_, index) => index).sort((a, b) => places[a] - places[b]);
  const moved = order.map((index) => places[index]);
  for (let at = 1; at < moved.length; at++) moved[at] = Math.max(moved[at], moved[at - 1] + gap);
  if (moved.length) moved[moved.length - 1] = Math.min(moved.at(-1), Math.max(1, gap * (moved.length - 1)));
  for (let at = moved.length - 2; at >= 0; at--) moved[at] = Math.min(moved[at], moved[at + 1] - gap);
  const found = [];
  order.forEach((index, at) => (found[index] = moved[at]));
  return found;
}

/** A name of at most `most` letters, without its middle. */
function shortened(name, most) {
  if (name.length <= most) return name;
  const kept = Math.max(2, most - 1);
  return `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(name.length - Math.floor(kept / 2))}`;
}

/** What names of workloads share, and what each has of its own: parts between '-' that all have are shared. */
function splitNames(names) {
  const parts = names.map((name) => name.split("-"));
  const shared = new Set(parts[0]?.filter((part) => parts.every((each) => each.includes(part))));
  const own = parts.map((each) => each.filter((part) => !shared.has(part)).join(" "));
  const distinct = new Set(own).size === names.length && own.every(Boolean);
  return distinct ? { shared: parts[0].filter((part) => shared.has(part)).join(" "), own } : { shared: "", own: names };
}
