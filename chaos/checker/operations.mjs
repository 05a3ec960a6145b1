/**
 * All checks of an operations run in one table: what was looked for, among how many, and what was found. Pure: facts in, findings out.
 */
import { countCells, findEmptyCells, findIdleKills } from './cells.mjs'
import {
  byRole,
  calledScript,
  emptyCells,
  expectedEvents,
  findLeftovers,
  findSurprises,
  indexed,
  rowsOf,
} from './queue-checks.mjs'

/** `options`: { queues, handQueue, faultNames, phases, networkFaults, scripts, killName, isFull, leastKills }. */
export function checkOperations(facts, options) {
  const { faultNames, phases, networkFaults, scripts, killName, isFull, leastKills } = options
  const history = indexed(facts)
  const faults = history.of('fault')
  const cells = countCells(faults.map(byRole(killName)), rowsOf(faultNames, killName), phases)
  const network = countCells(
    history.of('network').map(({ fault, script }) => ({ fault: script, phase: fault })),
    scripts,
    networkFaults,
  )
  const kills = findIdleKills(faults, killName)
  const events = expectedEvents(history, options)
  const ends = findWrongEnds(history, events)
  const orphans = findOrphans(history)
  const answers = findWrongAnswers(history)
  const checked = history.of('fsck')
  const checks = [
    {
      ...{ what: 'without a true end', among: ends.looked, of: 'operations of acknowledged events', found: ends.found },
      note: `${ends.failed} failed, with a reason`,
    },
    { what: 'miscounted', among: ends.counted, of: 'ended operations', found: ends.miscounted },
    {
      what: 'running without an owner',
      among: orphans.looked,
      of: 'looks at running operations',
      found: orphans.found,
    },
    {
      what: 'wrong answers',
      among: answers.looked,
      of: 'questions',
      found: answers.found,
      note: `${answers.away} while Redis was away`,
    },
    {
      what: 'findings of fsck',
      among: checked.length,
      of: 'runs of it',
      found: checked.flatMap(({ findings }) => findings),
    },
    { what: 'leftovers', among: history.of('left').length, of: 'looks at what is left', found: findLeftovers(history) },
    {
      ...{ what: 'surprises', among: faults.length, of: 'faults', found: findSurprises(history, options) },
      note: `${history.of('missed').length} not struck as planned`,
    },
  ]
  const tooFew = kills.kills < leastKills ? [`only ${kills.kills} processes were killed, ${leastKills} are needed`] : []
  const coverage = isFull ? [...emptyCells(cells), ...findEmptyCells(network).map(calledScript), ...tooFew] : []
  const violations = [...checks.flatMap(({ found }) => found), ...coverage, ...kills.found]
  const late = history.of('stale').length
  return { cells, network, checks, kills, late, joined: history.of('joined').length, violations }
}

const endStates = new Set(['succeeded', 'failed', 'cancelled'])

/** Each acknowledged event has an operation that has ended, as its item has; and each end was counted once. */
function findWrongEnds({ of }, { byQueue }) {
  const found = []
  const miscounted = []
  let [looked, failed, counted] = [0, 0, 0]
  const dead = new Map(of('dead').map(({ queue, ids }) => [queue, new Set(ids)]))
  for (const { queue, track, records, total, indexed: members } of of('operations')) {
    const known = new Map(records.map(([name, status, attempts]) => [name, { status, attempts }]))
    const isDead = (id) => dead.get(queue)?.has(id) ?? false
    for (const id of byQueue.get(queue).keys()) {
      looked += 1
      const expected = isDead(id) ? 'failed' : 'succeeded'
      const operation = known.get(id)
      // Of those that succeeded only the count is kept there.
      if (track === 'failures' && expected === 'succeeded' && !operation) continue
      if (!operation)
        found.push(`${queue} ${id}: its item is ${isDead(id) ? 'a dead letter' : 'done'}, and there is no operation`)
      else if (operation.status !== expected)
        found.push(
          `${queue} ${id}: its item is ${isDead(id) ? 'a dead letter' : 'done'}, its operation ${operation.status}`,
        )
      else if (operation.attempts < 1) found.push(`${queue} ${id}: it ended without an attempt`)
    }
    const of_ = (status) => records.filter(([, one]) => one === status).length
    failed += of_('failed')
    counted += total.succeeded + total.failed + total.cancelled
    const all = byQueue.get(queue).size
    const succeeded = track === 'failures' ? all - of_('failed') : of_('succeeded')
    if (total.succeeded !== succeeded || total.failed !== of_('failed') || total.cancelled !== of_('cancelled'))
      miscounted.push(
        `${queue}: counted ${total.succeeded} succeeded, ${total.failed} failed, ${total.cancelled} cancelled; there are ${succeeded}, ${of_('failed')}, ${of_('cancelled')}`,
      )
    if (members !== records.length)
      miscounted.push(`${queue}: ${records.length} records, but ${members} in the indexes`)
  }
  return { looked, found, failed, counted, miscounted }
}

/** What says that it runs has a lease; where it has lapsed, somebody brings it back within a second, unless all stood still. */
function findOrphans({ of }) {
  const struck = [...of('fault').filter(({ worker }) => worker === undefined), ...of('late')]
  const since = new Map()
  const found = []
  let looked = 0
  for (const { t, queue, now, operations } of of('running')) {
    looked += operations.length
    const here = new Set()
    for (const [name, lapses] of operations) {
      if (lapses > now) continue
      const key = `${queue} ${name} ${lapses}`
      here.add(key)
      const first = since.get(key) ?? t
      since.set(key, first)
      const isCalm = !struck.some((one) => one.t <= t && (one.until ?? one.t) >= first - 1_000_000)
      if (lapses === 0) found.push(`${key}: it runs under no lease`)
      else if (now - lapses > orphanMs && isCalm)
        found.push(`${key}: it runs ${now - lapses} ms after its lease had lapsed`)
    }
    for (const key of since.keys()) if (key.startsWith(`${queue} `) && !here.has(key)) since.delete(key)
  }
  return { looked, found: [...new Set(found)] }
}
// What it reads as is another thing: it is queued from the moment on. Brought back it is with the next claim, within a second.
const orphanMs = 5_000

/** An end is an end, and what was known is not unknown again, but where only failures are kept. */
function findWrongAnswers({ of }) {
  const found = []
  const last = new Map()
  const tracks = new Map(of('operations').map(({ queue, track }) => [queue, track]))
  let away = 0
  const asked = of('asked')
  for (const { queue, id, status } of asked) {
    const key = `${queue} ${id}`
    const before = last.get(key)
    if (status === 'away' || status === 'REDIS_UNAVAILABLE') {
      away += 1
      continue
    }
    const isUnknown = status === 'OPERATION_NOT_FOUND'
    if (before && endStates.has(before) && status !== before) found.push(`${key}: it was ${before}, then ${status}`)
    if (before && isUnknown && !endStates.has(before) && tracks.get(queue) !== 'failures')
      found.push(`${key}: it was ${before}, then unknown`)
    if (!isUnknown) last.set(key, status)
    else if (tracks.get(queue) === 'failures') last.delete(key)
  }
  return { looked: asked.length, found, away }
}
