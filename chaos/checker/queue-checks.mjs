/**
 * What holds in every run of queues, whatever it strikes and judges besides: counts of stores, handlings under leases, effects before acks,
 * what should not have happened at all. Pure: facts in, findings out.
 */
import { findEmptyCells } from './cells.mjs'
import { groupSorted, readHistory } from './index.mjs'

/** As the texts about cells have it for workers. */
export const calledScript = (text) => text.replace('a worker in phase', 'a call that is')

export function indexed(facts) {
  const withoutEvents = readHistory([])
  const byKind = groupSorted(
    facts,
    ({ kind }) => kind,
    () => 0,
  )
  return { ...withoutEvents, of: (kind) => byKind.get(kind) ?? [] }
}

/** Kills of workers and of routers are rows of their own. */
export const byRole = (killName) => (fact) =>
  fact.fault === killName ? { ...fact, fault: `${killName} ${fact.role}` } : fact
export const rowsOf = (names, killName) =>
  names.flatMap((name) => (name === killName ? [`${name} worker`, `${name} router`] : [name]))

/** A router claims and handles nothing. */
export function emptyCells(cells) {
  const ofRouters = new Set(['idle', 'route', 'commit'])
  const possible = [...cells].map(([fault, row]) => [
    fault,
    fault.endsWith(' router') ? new Map([...row].filter(([phase]) => ofRouters.has(phase))) : row,
  ])
  // What strikes all at once meets them wherever they are.
  return findEmptyCells(possible.filter(([fault]) => /^(kill|SIGSTOP|blocked)/.test(fault)))
}

/** What has to be in each queue: ids with tenant and number of acknowledged events, and of sends. */
export function expectedEvents({ of }, { queues, handQueue }) {
  const acked = of('acked')
  const byQueue = new Map(
    queues.map(({ name, types }) => [
      name,
      new Map(acked.filter(({ type }) => types.includes(type)).map((one) => [one.id, one])),
    ]),
  )
  byQueue.set(handQueue, new Map(of('sent').map((one) => [one.id, one])))
  return { byQueue, total: [...byQueue.values()].reduce((sum, ids) => sum + ids.size, 0) }
}

/** At every look in a quiet moment: each matching event has entered each store exactly once, and the counts balance. */
export function findWrongStores({ of }, { byQueue }, undone) {
  const found = []
  const looks = of('store')
  const sorted = new Map(
    [...byQueue].map(([name, ids]) => [name, [...ids.values()].map(({ t }) => t).sort((a, b) => a - b)]),
  )
  for (const { t, queue, entered, out, expired, dropped, discarded, ...now } of looks) {
    const { waiting, behind = 0, later, held, parked = 0, dead } = now
    const gone = undone.filter((one) => one.queue === queue && one.t <= t).length
    const expected = sorted.get(queue).filter((at) => at <= t).length - gone
    if (entered !== expected) found.push(`${queue}: ${entered} items have entered, ${expected} events match`)
    const places = out + expired + dropped + discarded + waiting + behind + later + held + parked + dead
    if (entered !== places) found.push(`${queue}: ${entered} items have entered, ${places} are accounted for`)
    if (waiting + behind + later + held + parked > 0)
      found.push(
        `${queue}: ${waiting + behind} wait, ${later} are for later, ${held} held, ${parked} parked in a quiet moment`,
      )
  }
  return { looked: looks.length, found }
}

/** Each handling has a lease of its own: no worker begins an item more often than it was given it. */
export function findUnheld({ items }) {
  const found = []
  for (const { queue, id, begins, grants } of items.values()) {
    for (const worker of new Set(begins.map((one) => one.worker))) {
      const began = begins.filter((one) => one.worker === worker).length
      const tokens = new Set(grants.filter((one) => one.worker === worker).map(({ token }) => token)).size
      if (began > tokens) found.push(`${queue} ${id}: ${worker} began it ${began} times under ${tokens} leases`)
    }
  }
  return found
}

/** A worker acks only what its handler was through with. */
export function findMissingEffects({ items }, { handQueue }) {
  const found = []
  for (const { queue, id, settles, ends } of items.values()) {
    if (queue === handQueue || queue.startsWith('brief')) continue
    for (const { worker, outcome, t } of settles)
      if (outcome === 'ack' && !ends.some((one) => one.worker === worker && one.how === 'done' && one.t <= t))
        found.push(`${queue} ${id}: ${worker} acked it before its handler was through`)
  }
  return found
}

/** Why a lease lapsed: what struck its holder, or Redis, meanwhile. */
export function titleOf(cause, { first, second }, { of }, { killName }) {
  if (cause !== 'lapsed') return cause
  const inEffect = ({ t, until }) => t <= second.answeredAt && until >= first.t
  // What the dead had sent may have arrived after their end.
  const isDead = ({ fault, t }) => fault === killName && t <= second.answeredAt
  const own = of('fault').find((one) => one.worker === first.worker && (inEffect(one) || isDead(one)))
  const network = of('network').find((one) => one.worker === first.worker && inEffect(one))
  const redis = of('fault').find((one) => one.worker === undefined && inEffect(one))
  const isLate = of('late').some((one) => (one.worker === first.worker || one.worker === undefined) && inEffect(one))
  const why = own?.fault ?? network?.fault ?? redis?.fault ?? (isLate ? 'no time on the machine' : undefined)
  return `lapsed (${why ?? (first.worker === 'hand' ? 'left by hand' : 'renewed too late')})`
}

export function findLeftovers({ of }) {
  return of('left').flatMap(({ what, keys }) => keys.map((key) => `${what}: ${key} is left`))
}

export function findSurprises({ of }, { memoryName }) {
  const scarce = of('fault').filter(({ fault }) => fault === memoryName)
  // Publishing is closed for 10 s at a time.
  const lastsUs = { REDIS_OUT_OF_MEMORY: 1e6, PUBLISHING_CLOSED: 12e6 }
  const isExpected = ({ t, code }) => scarce.some((one) => t >= one.t && t <= one.until + lastsUs[code])
  return [
    ...[...of('crashed'), ...of('unstarted')].map(
      ({ worker, code, signal }) => `${worker} ended by itself with ${signal ?? `exit ${code}`}`,
    ),
    ...of('stalled').map(({ what, tookMs }) => `${what}: not within ${(tookMs / 1000).toFixed(0)} s`),
    ...of('gap').map(({ worker, said }) => `${worker} was told of a gap in partition ${said}`),
    // A queue that is there for a moment only may be met by a router before its store is made.
    ...of('remade')
      .filter(({ said }) => !said.startsWith('brief'))
      .map(({ worker, said }) => `${worker} had to make the store of ${said} again`),
    ...of('stuck').map(({ worker, said }) => `${worker} was stuck: ${said}`),
    ...of('surprise').map(({ code }) => `by hand: ${code}`),
    ...of('refused')
      .filter((one) => !isExpected(one))
      .map(({ tenant, n, code }) => `the publish of ${tenant} ${n} ended with ${code}`),
    ...of('unsent')
      .filter((one) => !isExpected(one))
      .map(({ code }) => `a send ended with ${code}`),
  ]
}
