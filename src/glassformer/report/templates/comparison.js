const list = document.getElementById("sentences");
const all = [...list.children];
const order = document.getElementById("order");
const find = document.getElementById("find");
const keys = {
  differ: ({dataset}) => -Math.abs(dataset.two - dataset.one),
  worse: ({dataset}) => dataset.two - dataset.one,
  better: ({dataset}) => dataset.one - dataset.two,
  low: ({dataset}) => Math.min(dataset.one, dataset.two),
  place: ({dataset}) => +dataset.place,
};
function show() {
  const words = find.value.toLowerCase();
  const key = keys[order.value];
  all.sort((a, b) => key(a) - key(b) || a.dataset.place - b.dataset.place);
  for (const one of all) one.hidden = words && !one.textContent.toLowerCase().includes(words);
  list.replaceChildren(...all);
}
order.addEventListener("change", show);
find.addEventListener("input", show);
