/** Brings a queues run to rest and looks at it: counts of every store, fsck. Then it goes on, or is over. */
import { nowUs, until } from './clock.mjs'

const restMs = 90_000
/** A queue with a rate is worked off no faster, however much has piled up while the machine was busy. */
const mostMs = 600_000

/** Nobody publishes or sends any more, and all that is there is worked off: then it is looked at. */
export async function comeToRest(context, part) {
  const { history, publisher, hand, bus, own, plan, crew, queueNames, handQueue } = context
  const began = nowUs()
  const stalled = (what) =>
    history.add('stalled', { t: nowUs(), what: `${what} after "${part}"`, tookMs: (nowUs() - began) / 1000 })
  const ask = async (actor, word, answer) => {
    const since = nowUs()
    actor.send(word)
    if (!(await until(() => (actor.last.get(answer) ?? 0) > since, { timeoutMs: restMs })))
      stalled(`"${word}" was not heard`)
  }
  await Promise.all([ask(publisher, 'hold', 'held'), ask(hand, 'rest', 'rested')])
  await until(() => crew.ready.length === plan.workers + plan.routers, { timeoutMs: 30_000 })
  const wanted = expectedCounts(context)
  let last = ''
  let lastChange = nowUs()
  let lastLeft = 0
  let lastEnd = nowUs()
  const isOver = async () => {
    const all = await Promise.all([...queueNames, handQueue.name].map((name) => bus.queues.get(name)))
    const now = all.map((one) => one.in).join(' ')
    if (now !== last) lastChange = nowUs()
    last = now
    const left = all.reduce((sum, one) => sum + one.waiting + one.behind + one.later + one.held + one.parked, 0)
    if (left < lastLeft) lastEnd = nowUs()
    lastLeft = left
    const isAllThere = all.every(({ name, in: entered }) => entered >= wanted.get(name))
    // Redis may have taken a tail with it: the checker says whether it was one.
    return left === 0 && (isAllThere || nowUs() - lastChange > 5_000_000)
  }
  const isStuck = () => nowUs() - lastEnd > restMs * 1000
  const ended = await until(async () => (await isOver()) || isStuck(), { timeoutMs: mostMs, everyMs: 100 })
  if (!ended || isStuck()) stalled('not everything was worked off')
  for (const name of [...queueNames, handQueue.name]) {
    const { in: entered, out, expired, dropped, discarded, ...now } = await bus.queues.get(name)
    const { waiting, behind, later, held, parked, dead } = now
    const counts = { entered, out, expired, dropped, discarded, waiting, behind, later, held, parked, dead }
    history.add('store', { t: nowUs(), queue: name, part, ...counts })
  }
  const findings = []
  for await (const { check, where, problem } of bus.fsck())
    findings.push(`fsck ${check}: ${where} ${problem}, after "${part}"`)
  history.add('fsck', { t: nowUs(), part, findings })
  await own.ping()
}

export function wake({ publisher, hand }) {
  publisher.send('go')
  hand.send('go')
}

function expectedCounts({ history, queues, queueNames, handQueue }) {
  const counts = new Map([...queueNames, handQueue.name].map((name) => [name, 0]))
  const add = (name) => counts.set(name, counts.get(name) + 1)
  for (const { kind, type } of history.facts) {
    if (kind === 'acked') for (const queue of queues) if (queue.types.includes(type)) add(queue.name)
    if (kind === 'sent') add(handQueue.name)
  }
  return counts
}
