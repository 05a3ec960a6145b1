/** What became of the events: none is missing, each key is in order, each repeat has a cause. */
import { groupSorted } from './index.mjs'

/** Acknowledged, and no handler was ever through with it. */
export function findMissing({ events }) {
  return [...events.values()]
    .filter(({ acked, firstEnd }) => acked && firstEnd === Number.POSITIVE_INFINITY)
    .map(({ id, key, n }) => `event ${id} (key ${key}, number ${n}) was acknowledged and never handled`)
}

/** Per key: the first handlings, by time, have growing numbers. Later ones are repeats and do not count. */
export function findDisorder({ events }) {
  const handled = [...events.values()].filter(({ handlings }) => handlings.length > 0)
  const keys = groupSorted(
    handled,
    ({ key }) => key,
    (a, b) => a.handlings[0].t - b.handlings[0].t,
  )
  const found = []
  for (const [key, list] of keys) {
    for (let i = 1; i < list.length; i += 1) {
      const [before, after] = [list[i - 1], list[i]]
      if (after.n > before.n && after.seq > before.seq) continue
      found.push(`key ${key}: number ${after.n} (${after.id}) was handled after number ${before.n} (${before.id})`)
    }
  }
  return found
}

/**
 * A repeat is a handling after another one of the same event. Its causes lie between the two: a fault of either worker or
 * of Redis that was in effect, or the loss or release of the partition by the first worker.
 *
 * Answers { repeats, causes: name → how many, most: repeats of one worker in one partition under one epoch, found }.
 */
export function findCauselessRepeats({ events, of }) {
  const faults = of('fault')
  const losses = groupSorted([...of('lost'), ...of('stale')], ({ partition }) => partition, byTime)
  const causes = new Map()
  const found = []
  const together = new Map()
  let repeats = 0
  for (const { id, partition, handlings } of events.values()) {
    for (let i = 1; i < handlings.length; i += 1) {
      repeats += 1
      const [first, second] = [handlings[i - 1], handlings[i]]
      const owner = `${partition} ${second.worker} ${second.epoch}`
      together.set(owner, (together.get(owner) ?? 0) + 1)
      const cause = causeOf(first, second, faults, losses.get(partition) ?? [])
      if (cause) causes.set(cause, (causes.get(cause) ?? 0) + 1)
      else
        found.push(
          `event ${id} was handled by ${first.worker} (epoch ${first.epoch}) and again by ${second.worker} ` +
            `(epoch ${second.epoch}) ${((second.t - first.t) / 1000).toFixed(1)} ms later, without a cause`,
        )
    }
  }
  return { repeats, causes, most: Math.max(0, ...together.values()), found }
}

const byTime = (a, b) => a.t - b.t

function causeOf(first, second, faults, losses) {
  const inEffect = faults.filter(({ t, until }) => t <= second.t && until >= first.t)
  const own = inEffect.find(({ worker }) => worker === first.worker)
  const redis = inEffect.find(({ worker }) => worker === undefined)
  const others = inEffect.find(({ worker }) => worker === second.worker)
  const fault = own ?? redis ?? others
  if (fault) return fault.fault
  const loss = losses.find(({ worker, t }) => worker === first.worker && t >= first.t && t <= second.t)
  if (!loss) return undefined
  return loss.kind === 'stale' ? 'expired' : { lost: 'expired', released: 'released', closed: 'left' }[loss.why]
}
