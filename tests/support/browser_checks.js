// What a reader would notice about the open page: run as one expression that returns the findings.
() => {
  const parse = (text) => {
    const numbers = text.match(/[\d.]+/g);
    return numbers ? [...numbers.slice(0, 3).map(Number), numbers.length > 3 ? Number(numbers[3]) : 1] : [0, 0, 0, 0];
  };
  const over = (top, below) => top.slice(0, 3).map((value, place) => value * top[3] + below[place] * (1 - top[3]));
  const background = (element) => {
    const layers = [];
    for (let own = element; own; own = own.parentElement) {
      const colour = parse(getComputedStyle(own).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return layers.reverse().reduce((below, top) => over(top, below), dark ? [18, 18, 18] : [255, 255, 255]);
  };
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = [], small = [], cut = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, words = node.textContent.trim();
    if (!words || ["SCRIPT", "STYLE", "OPTION", "NOSCRIPT", "title"].includes(element.tagName)) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || element.closest(".unseen")) continue;
    const style = getComputedStyle(element), drawing = element.closest("svg");
    const matrix = drawing && element.getScreenCTM();
    const scale = matrix ? Math.hypot(matrix.a, matrix.b) : 1, size = parseFloat(style.fontSize) * scale;
    if (size < 10.9) small.push([words.slice(0, 40), Math.round(size * 10) / 10, element.getAttribute("class")]);
    // A text within a coloured field is measured against that field by the tests of plots.
    if (drawing && element.classList.contains("on")) continue;
    const behind = background(drawing ? drawing.parentElement : element);
    const colour = over(parse(drawing ? style.fill : style.color), behind), found = contrast(colour, behind);
    const large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 600);
    if (found < (large ? 3 : 4.5)) faint.push([words.slice(0, 40), Math.round(found * 100) / 100, element.getAttribute("class")]);
  }
  for (const drawing of document.querySelectorAll("svg")) {
    if (!drawing.checkVisibility()) continue;
    const frame = drawing.getBoundingClientRect();
    for (const own of drawing.querySelectorAll("text")) {
      const box = own.getBoundingClientRect();
      if (!box.width) continue;
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        cut.push([own.textContent.slice(0, 40), drawing.getAttribute("aria-label")]);
    }
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  return { faint, small, cut, wide };
}
