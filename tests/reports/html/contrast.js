// Every visible text of the page with less contrast against what is behind it than `arguments[0]`: [text, colours].
const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const channels = (colour) => {
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = colour;
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = probe.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const over = ([r, g, b, a], back) => [r, g, b].map((part, at) => part * a + back[at] * (1 - a));
const backOf = (node) => {
  const found = [];
  for (let one = node; one; one = one.parentElement) found.unshift(channels(getComputedStyle(one).backgroundColor));
  return found.reduce((back, colour) => over(colour, back), [255, 255, 255]);
};
const opacityOf = (node) => {
  let opacity = 1;
  for (let one = node; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity);
  return opacity;
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const bad = [];
let seen = 0;
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest("script, :disabled, .hidden-caption, .skip")) continue;
  const style = getComputedStyle(node);
  const isSvg = node.namespaceURI.endsWith("svg");
  const [r, g, b, a] = channels(isSvg ? style.fill : style.color);
  const back = backOf(isSvg ? node.closest("svg").parentElement : node);
  // A border in the page's colour below the same text is meant not to be seen.
  if (isSvg && style.stroke !== "none" && Math.abs(luminance([r, g, b]) - luminance(back)) < 0.001) continue;
  seen++;
  const alpha = a * opacityOf(node) * (isSvg ? Number(style.fillOpacity) : 1);
  const [high, low] = [luminance(over([r, g, b, alpha], back)), luminance(back)].sort((x, y) => y - x);
  const ratio = (high + 0.05) / (low + 0.05);
  if (ratio < arguments[0]) bad.push([walker.currentNode.data.trim().slice(0, 60), ratio, [r, g, b, alpha], back, node.outerHTML.slice(0, 120)]);
}
return [seen, bad];
