/**
 * Order per object, from two sides: the effects as they were recorded outside Redis, by the one clock; and who was given what, by the
 * server's clock, as the proxies saw it.
 *
 * The effects go to a receiver that keeps the seq of the last one that it applied, per queue and object, as `orderGuard` does:
 *
 *   applied     above the last one, and everything between the two was given up
 *   duplicate   it was applied before: at least once, or one who woke up late
 *   overtaken   it was given up (a dead letter, or discarded with its object) before, and someone is late with it, or it was redriven
 *
 * Anything else is a violation: an effect that comes late and was never there before, one that leaves out another, none at all.
 */
import { groupSorted } from './index.mjs'

const toleranceUs = 5_000
const seqOf = (id) => Number(id.split('-')[1])

/** Answers "queue tenant/key" → { queue, items, discards }; items are in the order in which they were published. */
export function readObjects({ of }, leases, { queues }) {
  const dead = new Set(of('dead').flatMap(({ queue, ids }) => ids.map((id) => `${queue} ${id}`)))
  const objects = new Map()
  const object = (name, queue) => {
    if (!objects.has(name)) objects.set(name, { name, queue, items: [], discards: [] })
    return objects.get(name)
  }
  for (const { id, type, tenant, key } of of('acked'))
    for (const queue of queues.filter(({ types }) => types.includes(type))) {
      const item = leases.items.get(`${queue.name} ${id}`) ?? unseen
      const isLetter = dead.has(`${queue.name} ${id}`) || item.redriven.length > 0 || item.isDiscarded
      const isAcked = item.settles.some(({ outcome, word }) => outcome === 'ack' && word !== 'stale')
      object(`${queue.name} ${tenant}/${key}`, queue).items.push({ ...item, id, seq: seqOf(id), isLetter, isAcked })
    }
  for (const fact of of('unparked'))
    if (fact.act === 'discard')
      for (const field of fact.objects) objects.get(`${fact.queue} ${field.replace(' ', '/')}`)?.discards.push(fact)
  for (const { items } of objects.values()) items.sort((a, b) => a.seq - b.seq)
  return objects
}

const unseen = { grants: [], settles: [], begins: [], ends: [], redriven: [], isDiscarded: false }

/** Answers { applied, duplicates, overtaken, disorder, missing }: what became of the effects, and what is wrong with them. */
export function judgeEffects(objects, leases) {
  const result = { applied: 0, duplicates: 0, overtaken: 0, disorder: [], missing: [] }
  for (const object of objects.values()) receive(object, leases, result)
  return { ...result, missing: [...result.missing, ...findMiscounted(objects)] }
}

function receive(object, leases, result) {
  const { name, items } = object
  const effects = items.flatMap((item, place) =>
    item.ends.filter(({ how }) => how === 'done').map((end) => ({ end, place })),
  )
  effects.sort((a, b) => a.end.t - b.end.t)
  const applied = new Set()
  let last = -1
  for (const { end, place } of effects) {
    const item = items[place]
    if (applied.has(place)) result.duplicates += 1
    else if (place < last && isGivenUp(object, item, leases)) result.overtaken += 1
    else if (place < last)
      result.disorder.push(
        `${name}: ${item.id} took effect (${end.worker}) only after ${items[last].id}, which came later`,
      )
    else {
      for (const left of items.slice(last + 1, place))
        if (!isGivenUp(object, left, leases))
          result.disorder.push(`${name}: ${item.id} took effect (${end.worker}), ${left.id} before it had not`)
      applied.add(place)
      last = place
    }
  }
  result.applied += applied.size
  for (const [place, item] of items.entries())
    if (!effects.some((one) => one.place === place) && (item.isAcked || !isGivenUp(object, item, leases)))
      result.missing.push(`${name}: ${item.id} was acknowledged${item.isAcked ? ', acked' : ''} and never took effect`)
}

/** A dead letter, or there when its object was given up: a seq is the server's time in µs. */
const isGivenUp = ({ discards }, { isLetter, seq }, { serverUs }) =>
  isLetter || discards.some(({ answeredAt }) => seq <= serverUs(answeredAt) + toleranceUs)

/** With parked objects exactly so many items were given up as the calls have said. */
function findMiscounted(objects) {
  const found = []
  for (const [queue, list] of groupSorted(
    [...objects.values()],
    ({ queue: { name } }) => name,
    () => 0,
  )) {
    const unended = list.flatMap(({ items }) => items.filter(({ isAcked, isLetter }) => !isAcked && !isLetter)).length
    const said = new Set(list.flatMap(({ discards }) => discards))
    const given = [...said].reduce((sum, { items }) => sum + items, 0)
    if (unended !== given)
      found.push(`${queue}: ${unended} items came to no end, ${given} were given up with their objects`)
  }
  return found
}

/**
 * Of one object nothing is given before what was given before it is over: acked, given up after its last attempt, or discarded with its
 * object. So a retry stays at the head, and no two leases of an object are live. And what is given comes in order, but for what was redriven.
 *
 * Answers { looked, found }.
 */
export function findOvertaking({ of }, objects, { endOf }) {
  const unsure = of('unsure')
  const found = []
  let looked = 0
  for (const object of objects.values()) {
    const grants = object.items.flatMap((item) => item.grants.map((grant) => ({ ...grant, item })))
    // What was given in the same ms is taken to be in order.
    grants.sort((a, b) => a.at - b.at || a.item.seq - b.item.seq)
    looked += grants.length
    for (let i = 1; i < grants.length; i += 1) {
      const [first, second] = [grants[i - 1], grants[i]]
      if (first.item === second.item) continue
      const what = `${object.name}: ${second.item.id} was given to ${second.worker}`
      if (!isOver(object, first, second)) found.push(`${what}, but ${first.item.id} of ${first.worker} was not over`)
      const isRedriven = second.item.redriven.some((t) => t <= second.answeredAt)
      if (second.item.seq < first.item.seq && !isRedriven) found.push(`${what} after ${first.item.id}`)
    }
  }
  return { looked, found }

  function isOver({ queue, discards }, first, second) {
    const { attempts: most } = queue.options.retry
    const parks = queue.options.onPoison === 'park'
    const isBetween = ({ t, answeredAt = t }) => t <= second.answeredAt && answeredAt >= first.t
    const own = first.item.settles.filter((one) => one.word !== 'stale' && isBetween(one))
    if (own.some(({ outcome }) => outcome === 'ack')) return true
    if (parks) return discards.some(isBetween)
    if (own.some(({ outcome }) => outcome === 'dead')) return true
    // Its last attempt may have come of a claim that nobody saw answered.
    if (first.item.isLetter && unsure.some((one) => one.queue === queue.name && isBetween(one))) return true
    if (first.attempts + 1 < most) return false
    return (
      own.some(({ outcome }) => outcome === 'retry') ||
      endOf(queue.name, first.token, second.at) <= second.at + toleranceUs
    )
  }
}
