// Numbers, sizes and times in words.

const COUNT = new Intl.NumberFormat("en");

export const count = (value) => COUNT.format(value);

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "";
  if (perSecond >= 1e6) return `${(perSecond / 1e6).toFixed(2)} M/s`;
  if (perSecond >= 1e4) return `${(perSecond / 1e3).toFixed(1)} k/s`;
  if (perSecond >= 10 || perSecond === 0) return `${count(Math.round(perSecond))}/s`;
  return `${perSecond.toFixed(1)}/s`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let left = value;
  while (left >= 1000 && unit < units.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${unit ? left.toFixed(1) : left} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export const moment = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 19) + "Z";

export function eventTime(us) {
  const found = new Date(us / 1000);
  return Number.isNaN(found.getTime()) ? `${us} µs` : found.toISOString().replace("T", " ").replace("Z", "");
}
