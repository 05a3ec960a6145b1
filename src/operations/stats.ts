/** How many operations of a queue ended how, per minute, and how long they took: operation-ends.part.lua counts them. */

export interface OperationCounts {
  succeeded: number
  failed: number
  cancelled: number
}

/** How long they took from the begin of their last attempt, in ms, right to a tenth; null when none has begun and ended. */
export interface OperationTimes {
  p50Ms: number | null
  p95Ms: number | null
}

export interface OperationMinute extends OperationCounts, OperationTimes {
  /** When it began, ms. */
  at: number
}

export interface OperationStats extends OperationCounts, OperationTimes {
  queue: string
  /** Over which the counts above are, ms: from the begin of a minute on. */
  from: number
  until: number
  /** Since the queue is tracked. */
  total: OperationCounts
  /** Those in which something ended, oldest first. */
  minutes: readonly OperationMinute[]
}

const minuteMs = 60_000

interface Counted {
  counts: OperationCounts
  /** Bucket → how many took up to 2 ^ (bucket / 4) ms. */
  took: ReadonlyMap<number, number>
}

/** "<succeeded> <failed> <cancelled> <bucket>:<how many>…" */
function readCounted(text: string): Counted {
  const [succeeded, failed, cancelled, ...buckets] = text.split(' ')
  const took = buckets.map((bucket) => bucket.split(':').map(Number) as [number, number])
  return {
    counts: { succeeded: Number(succeeded), failed: Number(failed), cancelled: Number(cancelled) },
    took: new Map(took),
  }
}

const nothing: Counted = { counts: { succeeded: 0, failed: 0, cancelled: 0 }, took: new Map() }

const added = (a: Counted, b: Counted): Counted => ({
  counts: {
    succeeded: a.counts.succeeded + b.counts.succeeded,
    failed: a.counts.failed + b.counts.failed,
    cancelled: a.counts.cancelled + b.counts.cancelled,
  },
  took: [...b.took].reduce((all, [bucket, n]) => all.set(bucket, (all.get(bucket) ?? 0) + n), new Map(a.took)),
})

/** The middle of a bucket: of the whole numbers in it. */
function middleOf(bucket: number): number {
  const [least, most] = [Math.floor(2 ** ((bucket - 1) / 4)) + 1, Math.floor(2 ** (bucket / 4) + 1e-6)]
  return Number(Math.sqrt(least * most).toPrecision(3))
}

/** That of the bucket in which the percentile falls. */
function percentile(took: ReadonlyMap<number, number>, share: number): number | null {
  const all = [...took.values()].reduce((sum, n) => sum + n, 0)
  let left = Math.ceil(all * share)
  for (const [bucket, n] of [...took].sort(([a], [b]) => a - b)) {
    left -= n
    if (left <= 0) return middleOf(bucket)
  }
  return null
}

const timesOf = (took: ReadonlyMap<number, number>): OperationTimes => ({
  p50Ms: percentile(took, 0.5),
  p95Ms: percentile(took, 0.95),
})

/** `stored`: minute since the epoch, or `total`, → what was counted. Minutes count whole: the one in which the time begins, and the one that has begun. */
export function statsOf(
  queue: string,
  stored: Readonly<Record<string, string>>,
  nowMs: number,
  lastMs: number,
): OperationStats {
  const first = Math.max(0, Math.floor((nowMs - lastMs) / minuteMs))
  const minutes = Object.entries(stored)
    .filter(([minute]) => Number(minute) >= first && Number(minute) * minuteMs <= nowMs)
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([minute, text]) => ({ at: Number(minute) * minuteMs, counted: readCounted(text) }))
  const sum = minutes.reduce((all, { counted }) => added(all, counted), nothing)
  return {
    ...{ queue, from: first * minuteMs, until: nowMs, ...sum.counts, ...timesOf(sum.took) },
    total: stored.total === undefined ? nothing.counts : readCounted(stored.total).counts,
    minutes: minutes.map(({ at, counted }) => ({ at, ...counted.counts, ...timesOf(counted.took) })),
  }
}
