(() => {
  const pick = document.getElementById("pick");
  const only = document.getElementById("only");
  const choose = document.getElementById("choose");
  if (!pick || !only || !choose) return;
  choose.hidden = false;

  function show() {
    document.dispatchEvent(new CustomEvent("pick", { detail: pick.value.slice(1) }));
    for (const panel of document.querySelectorAll("figure[data-group]")) {
      panel.hidden = only.value !== "" && panel.dataset.group !== "" && only.value !== `=${panel.dataset.group}`;
    }
  }

  // What was chosen stands in the address, so that a link shows the same.
  function remember() {
    const state = new URLSearchParams();
    if (pick.value !== "") state.set("method", pick.value.slice(1));
    if (only.value !== "") state.set("dataset", only.value.slice(1));
    const text = state.toString();
    history.replaceState(null, "", text ? `#${text}` : "#how");
    show();
  }

  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    const method = [...pick.options].find((option) => option.value === `=${state.get("method")}`);
    const dataset = [...only.options].find((option) => option.value === `=${state.get("dataset")}`);
    if (!state.has("method") && !state.has("dataset")) return;
    pick.value = method ? method.value : "";
    only.value = dataset ? dataset.value : "";
    show();
  }

  pick.addEventListener("change", remember);
  only.addEventListener("change", remember);
  addEventListener("hashchange", recall);
  // The charts listen once all scripts of the page have run.
  setTimeout(recall);
})();
