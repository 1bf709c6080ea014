"use strict";
(() => {
  const pick = document.getElementById("pick");
  const only = document.getElementById("only");
  const choose = document.getElementById("choose");
  if (!pick || !only || !choose) return;
  choose.hidden = false;

  function show() {
    document.body.classList.toggle("picking", pick.value !== "");
    for (const mark of document.querySelectorAll(".picked")) mark.classList.remove("picked");
    if (pick.value !== "") {
      for (const mark of document.querySelectorAll(`[data-e="${Number(pick.value)}"]`)) mark.classList.add("picked");
    }
    for (const panel of document.querySelectorAll("[data-d]")) {
      panel.hidden = only.value !== "" && only.value !== `=${panel.dataset.d}`;
    }
  }

  // What was chosen stands in the address, so that a link shows the same.
  function remember() {
    const state = new URLSearchParams();
    if (pick.value !== "") state.set("method", pick.selectedOptions[0].text);
    if (only.value !== "") state.set("dataset", only.value.slice(1));
    const text = state.toString();
    history.replaceState(null, "", text ? `#${text}` : "#how");
    show();
  }

  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    const method = [...pick.options].find((option) => option.value !== "" && option.text === state.get("method"));
    const dataset = [...only.options].find((option) => option.value === `=${state.get("dataset")}`);
    if (!state.has("method") && !state.has("dataset")) return;
    pick.value = method ? method.value : "";
    only.value = dataset ? dataset.value : "";
    show();
  }

  pick.addEventListener("change", remember);
  only.addEventListener("change", remember);
  addEventListener("hashchange", recall);
  recall();
})();
