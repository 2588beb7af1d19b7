// Where one points at a chart, a line and what is there.
for (const plot of document.querySelectorAll("[data-hover]")) {
  const told = JSON.parse(plot.dataset.hover);
  const cursor = document.createElement("div"), says = document.createElement("div");
  cursor.className = "cursor";
  says.className = "says";
  const away = () => { cursor.remove(); says.remove(); };
  plot.addEventListener("pointerleave", away);
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(), share = (event.clientX - box.left) / box.width;
    if (share < 0 || share > 1) return away();
    let at = told.at.findIndex((place) => place > share);
    at = Math.max(0, (at < 0 ? told.at.length : at) - 1);
    cursor.style.left = `${told.at[at] * 100}%`;
    says.style.cssText = share < 0.5 ? `left: calc(${told.at[at] * 100}% + 8px)` : `right: calc(${100 - told.at[at] * 100}% + 8px)`;
    says.textContent = [told.x[at], ...told.rows.map(([name, values]) => `${name}: ${values[at]}`)].join("\n");
    plot.append(cursor, says);
  });
}
