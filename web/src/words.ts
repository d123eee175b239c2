// Numbers and times as people read them.

export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** 4 s, 12 min, 3 h, 2 d: how long, in the largest unit that says enough. */
export function lasting(seconds: number): string {
  const value = Math.max(0, seconds);
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86_400)} d`;
}

export function clock(at: number): string {
  return new Date(at * 1000).toISOString().slice(11, 23);
}

export function day(at: number): string {
  return new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ");
}
