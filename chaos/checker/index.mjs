/**
 * The events of a history as the checks need them: who was acknowledged, and every handling of each, in the order of time.
 * Pure, like all checks: facts in, findings out.
 */

export const keyOf = (partition, seq) => `${partition}-${seq}`

/** Answers { events, of(kind) }; events: id → { partition, seq, key, n, acked, handlings, firstEnd }. */
export function readHistory(facts) {
  const byKind = new Map()
  for (const fact of facts) {
    const list = byKind.get(fact.kind)
    if (list) list.push(fact)
    else byKind.set(fact.kind, [fact])
  }
  const of = (kind) => byKind.get(kind) ?? []
  const events = new Map()
  const event = ({ partition, seq, key, n }) => {
    const id = keyOf(partition, seq)
    const known = events.get(id)
    if (known) return known
    const fresh = { id, partition, seq, key, n, acked: false, handlings: [], firstEnd: Number.POSITIVE_INFINITY }
    events.set(id, fresh)
    return fresh
  }
  for (const fact of of('acked')) event(fact).acked = true
  for (const fact of of('began')) event(fact).handlings.push(fact)
  for (const { partition, seq, t } of of('ended')) {
    const ended = events.get(keyOf(partition, seq))
    if (ended) ended.firstEnd = Math.min(ended.firstEnd, t)
  }
  for (const { handlings } of events.values()) handlings.sort((a, b) => a.t - b.t)
  return { events, of }
}

/** Lists of values by a number, each sorted. */
export function groupSorted(list, by, order) {
  const groups = new Map()
  for (const one of list) {
    const group = groups.get(by(one))
    if (group) group.push(one)
    else groups.set(by(one), [one])
  }
  for (const group of groups.values()) group.sort(order)
  return groups
}
