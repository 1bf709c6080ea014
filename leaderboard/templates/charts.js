{
  // Draws the charts of a page when they come into view. The library is one file of the site, loaded
  // once; it evaluates no text as code (an interpreter of its own), fetches nothing and follows no
  // link. Texts of a run are data of the charts and text content of tables, never markup.
  const sheets = new Map();
  for (const block of document.querySelectorAll("script.charts")) sheets.set(block.dataset.prefix, JSON.parse(block.textContent));
  const figures = Array.from(document.querySelectorAll("figure[data-chart]"));
  const drawn = new Map();
  const picked = new WeakMap();
  const refuse = () => Promise.reject(new Error("charts load nothing"));
  const quiet = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

  let waiting = null;
  const library = () => {
    waiting ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = document.querySelector('meta[name="chart-library"]').content;
      script.onload = () => resolve(window.vegaEmbed);
      script.onerror = () => reject(new Error("vega.js is not beside this page"));
      document.head.append(script);
    });
    return waiting;
  };

  const contentOf = (figure) => {
    const [, prefix, number] = figure.dataset.chart.match(/^(.*?)(\d+)$/);
    const sheet = sheets.get(prefix);
    return { sheet, chart: sheet.charts[Number(number)] };
  };
  const rowsOf = (table) => {
    // Texts that repeat are numbered.
    const columns = Object.entries(table).map(([name, column]) => [name, column.texts ? column.at.map((k) => column.texts[k]) : column]);
    return columns.length ? columns[0][1].map((_, k) => Object.fromEntries(columns.map(([name, column]) => [name, column[k]]))) : [];
  };
  // Colours are variables of the style sheet: of this page, or of light pages for files.
  const coloured = (part, value) => {
    if (typeof part === "string") return part.startsWith("var(--chart-") ? value(part) : part;
    if (Array.isArray(part)) return part.map((item) => coloured(item, value));
    if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([key, item]) => [key, coloured(item, value)]));
    return part;
  };
  const onPage = (text) => getComputedStyle(document.documentElement).getPropertyValue(text.slice(4, -1)).trim();

  const scopeOf = (figure) => figure.closest(".front-chart, section") ?? document.body;
  const pickedOf = (scope) => { if (!picked.has(scope)) picked.set(scope, new Set()); return picked.get(scope); };

  const specOf = (figure, value) => {
    const { sheet, chart } = contentOf(figure);
    const spec = coloured(sheet.specs[chart.spec], value);
    spec.config = coloured(sheet.config, value);
    spec.datasets = Object.fromEntries(Object.entries(chart.data).map(([name, table]) => [name, rowsOf(table)]));
    return spec;
  };
  const options = { ast: true, actions: false, loader: quiet, renderer: "svg", logLevel: 1, tooltip: { theme: "custom" } };

  async function draw(figure) {
    const plot = figure.querySelector(".plot");
    const spec = specOf(figure, onPage);
    const side = typeof spec.width === "number" && spec.width === spec.height;
    const width = Math.max(140, plot.clientWidth - 2);
    spec.autosize = { type: side ? "pad" : "fit-x", contains: "padding" };
    if (side) { const most = Math.min(spec.width, width - 100); spec.width = most; spec.height = most; } else spec.width = width;
    spec.params.find((item) => item.name === "picked").value = [...pickedOf(scopeOf(figure))];
    const embed = await library();
    drawn.get(figure)?.finalize();
    const target = document.createElement("div");
    const result = await embed(target, spec, options);
    plot.replaceChildren(target);
    plot.style.minHeight = "";
    drawn.set(figure, result);
    if (!figure.querySelector(".chart-tools")) tools(figure);
  }
  const attempt = (figure) => draw(figure).catch((problem) => {
    figure.querySelector(".plot").textContent = `The chart cannot be drawn: ${problem.message}.`;
  });

  // ---- Below each chart: its numbers, and the chart as a file in the colours of light pages.
  function tools(figure) {
    const { chart } = contentOf(figure);
    const line = document.createElement("div"), details = document.createElement("details"), summary = document.createElement("summary");
    line.className = "chart-tools";
    summary.textContent = "Numbers";
    details.append(summary);
    details.addEventListener("toggle", () => { if (details.open && !details.querySelector("table")) details.append(numbers(chart)); });
    for (const kind of ["svg", "png"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind.toUpperCase();
      button.title = `Save this chart as ${kind.toUpperCase()}`;
      button.addEventListener("click", () => save(figure, kind));
      line.append(button);
    }
    line.prepend(details);
    figure.append(line);
  }
  function numbers(chart) {
    const wrap = document.createElement("div"), table = document.createElement("table");
    const columns = Object.entries(chart.headings), first = columns[0][0];
    const head = table.createTHead().insertRow();
    for (const [, title] of columns) { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = title; head.append(cell); }
    const body = table.createTBody();
    for (const part of Object.values(chart.data)) {
      if (!(first in part) || !columns.some(([name]) => name !== first && name in part && name !== "text")) continue;
      for (const row of rowsOf(part)) {
        const line = body.insertRow();
        for (const [name] of columns) line.insertCell().textContent = row[name] ?? "";
      }
    }
    wrap.className = "wrap fit";
    table.className = "plain num";
    wrap.append(table);
    return wrap;
  }
  async function save(figure, kind) {
    const { sheet, chart } = contentOf(figure);
    const spec = { ...specOf(figure, (text) => sheet.light[text]), title: chart.title, background: "white" };
    const embed = await library();
    const result = await embed(document.createElement("div"), spec, options);
    const link = document.createElement("a");
    link.href = await result.view.toImageURL(kind, kind === "png" ? 3 : 1);
    link.download = `${chart.title.replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").toLowerCase() || "chart"}.${kind}`;
    link.click();
    result.finalize();
  }

  // ---- Legends filter: chosen series stay, the others become faint, in all charts of the section.
  function show(scope) {
    const chosen = [...pickedOf(scope)];
    for (const button of scope.querySelectorAll("button[data-series]")) button.setAttribute("aria-pressed", String(chosen.includes(button.dataset.series)));
    for (const [figure, result] of drawn) if (scopeOf(figure) === scope) result.view.signal("picked", chosen).runAsync();
  }
  for (const button of document.querySelectorAll("button[data-series]")) {
    button.addEventListener("click", () => {
      const scope = scopeOf(button), chosen = pickedOf(scope), name = button.dataset.series;
      if (!chosen.delete(name)) chosen.add(name);
      show(scope);
    });
  }
  document.addEventListener("pick", (event) => {
    for (const scope of new Set(figures.map(scopeOf))) {
      pickedOf(scope).clear();
      if (event.detail) pickedOf(scope).add(event.detail);
      show(scope);
    }
  });

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { observer.unobserve(entry.target); attempt(entry.target); }
  }, { rootMargin: "200px" });
  // The page answers first: charts wait until it is idle.
  const begin = () => figures.forEach((figure) => observer.observe(figure));
  if (figures.length) (window.requestIdleCallback ?? setTimeout)(begin);
  const again = () => { for (const figure of drawn.keys()) attempt(figure); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; again(); } }, 200);
  });
  addEventListener("beforeprint", () => { for (const figure of figures) if (!drawn.has(figure)) attempt(figure); });
}
