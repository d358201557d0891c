// Writes amounts, ages and prices as text. Pure functions.

const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export function age(createdAt, now = Date.now()) {
  if (!createdAt) return "–";
  const seconds = Math.max(0, (now - Date.parse(createdAt)) / 1000);
  for (const [unit, suffix] of UNITS) {
    if (seconds >= 2 * unit || unit === 1) return `${Math.floor(seconds / unit)}${suffix}`;
  }
  return "–";
}

export function price(amount, digits = 4) {
  if (amount === null || amount === undefined) return "–";
  return amount.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function percent(share) {
  return `${Math.min(Math.round(100 * share), 999)} %`;
}

export function tone(share) {
  return share > 0.9 ? "good" : share > 0.6 ? "fair" : "bad";
}

export function stateTone(state) {
  return state === "Ready" ? "good" : state === "NotReady" ? "bad" : "fair";
}

export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function natural(left, right) {
  return left.localeCompare(right, "en", { numeric: true });
}
