// Show the values under the pointer; without a script a page lacks nothing else.
for (const plot of document.querySelectorAll(".plot[data-curves]")) {
  const {last, curves} = JSON.parse(plot.dataset.curves);
  const read = plot.closest("figure").querySelector(".read");
  const resting = read.innerHTML;
  const now = plot.querySelector(".now");
  const show = (value) => (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : +value.toPrecision(4));
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const step = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * last;
    let at = null;
    const words = curves.map(([name, steps, values]) => {
      let best = 0;
      steps.forEach((x, i) => {
        if (Math.abs(x - step) < Math.abs(steps[best] - step)) best = i;
      });
      at ??= steps[best];
      return (name ? name + " " : "") + show(values[best]);
    });
    read.textContent = "update " + Math.round(at).toLocaleString("en") + ": " + words.join(", ");
    now.setAttribute("x1", (at / last) * 1000);
    now.setAttribute("x2", (at / last) * 1000);
    now.style.display = "inline";
  });
  plot.addEventListener("pointerleave", () => {
    read.innerHTML = resting;
    now.style.display = "none";
  });
}
