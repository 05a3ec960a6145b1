/**
 * Strikes, one fault after the other, some of them two at once, between joins and leaves; after each it waits until the
 * group has got over it. What it does follows from the seed; when and whom it meets, also from the machine.
 */
import { nowUs, until } from './clock.mjs'
import { reach } from './phases.mjs'

const twoAtOnce = 0.25
const reachMs = 3_000
const overItMs = 60_000

/** `strikes` is a list of { fault, phase }; a fault of Redis has no phase. Answers how many were carried out. */
export async function strikeAll(run, strikes, { deadlineUs = Number.POSITIVE_INFINITY, report }) {
  const queue = [...strikes]
  let carriedOut = 0
  while (queue.length > 0 && nowUs() < deadlineUs) {
    if (run.random.float() < run.plan.churn) await churn(run)
    const together = [queue.shift()]
    if (together[0].phase && queue[0]?.phase && run.random.float() < twoAtOnce) together.push(queue.shift())
    await Promise.all(together.map((strike) => strikeOne(run, strike)))
    carriedOut += together.length
    await getOver(run)
    report(`${carriedOut} of ${strikes.length} faults`)
  }
  return carriedOut
}

async function strikeOne(run, { fault, phase }) {
  if (phase === undefined) return fault.strike(run)
  const blockMs = fault.blockMs?.(run) ?? 0
  for (let attempt = 1; attempt <= 5; attempt += 1) {
    const victim = await pickVictim(run)
    if (!victim) continue
    const isThere = await reach(victim, phase, { timeoutMs: reachMs, blockMs })
    if (isThere) await fault.strike(run, victim, phase, blockMs)
    victim.isPicked = false
    if (isThere) return
  }
  run.history.add('missed', { t: nowUs(), fault: fault.name, phase })
}

async function pickVictim({ crew, random }) {
  const candidates = () => crew.ready.filter(({ held, isPicked }) => held.size > 0 && !isPicked)
  await until(() => candidates().length > 0, { timeoutMs: 5_000 })
  // Asked again: whoever waited at the same time has picked one meanwhile.
  const victim = random.pick(candidates())
  if (victim) victim.isPicked = true
  return victim
}

/** One leaves in order and another joins, in either order. */
async function churn({ crew, random }) {
  const leaver = random.pick(crew.ready.filter(({ isPicked }) => !isPicked))
  if (!leaver) return
  const joinsFirst = random.float() < 0.5
  if (joinsFirst) await crew.hire()
  await crew.dismiss(leaver)
  if (!joinsFirst) await crew.hire()
}

async function getOver({ crew, plan, history }) {
  const since = nowUs()
  const isOver = await until(() => crew.isAtWorkSince(since, plan.workers, plan.partitions), { timeoutMs: overItMs })
  const tookMs = (nowUs() - since) / 1000
  history.add(isOver ? 'over' : 'stalled', { t: nowUs(), tookMs })
}
