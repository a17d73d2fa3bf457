// How numbers are written: four decimals, more for small ones, a real minus sign, and never more than is known.

export function digits(x) {
  if (x === Infinity) return '∞';
  if (x === -Infinity) return '−∞';
  if (Number.isNaN(x)) return '?';
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size < 1e-3) return minus(x.toExponential(2));
  const places = size >= 1e4 ? 0 : size >= 1000 ? 1 : size >= 100 ? 2 : size >= 10 ? 3 : 4;
  return minus(x.toFixed(places));
}

export function whole(x) {
  return Number.isInteger(x) ? minus(String(x)) : digits(x);
}

// For a matrix full of numbers: as short as can be.
export function brief(x) {
  if (!Number.isFinite(x)) return digits(x);
  const size = Math.abs(x);
  if (size === 0) return '0';
  if (size < 0.005) return x < 0 ? '−0.00' : '0.00';
  return minus(x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2));
}

export function percent(x) {
  if (!Number.isFinite(x)) return digits(x);
  const share = 100 * x;
  return `${share.toFixed(share === 0 || share >= 9.95 ? 0 : 1)} %`;
}

export function tiny(x) {
  return x === 0 ? '0' : Number.isFinite(x) ? minus(x.toExponential(0)) : digits(x);
}

function minus(text) {
  return text.replace(/-/g, '−');
}
