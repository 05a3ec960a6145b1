/**
 * Strikes what a part of a plan says, several at a time, each at a process that is in the wanted phase. Which fault comes when follows
 * from the seed; whom it meets, also from the machine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { block, kill, letGo, memory, reach, restart, stop } from '../faults/queues.mjs'
import { nowUs, until } from './clock.mjs'

const ofProcesses = new Set([kill, stop, block])

/** Several at a time strike, one after the other, what the plan says, in an order by chance. */
export async function strikePart(context, { strikes, network: isBad, forMs }, report) {
  const { random, plan, network, hand, phasesByRole } = context
  const queue = random.shuffled(strikes.flatMap(([fault, times]) => planned(fault, times, random, phasesByRole)))
  const all = queue.length
  const deadlineUs = forMs ? nowUs() + forMs * 1000 : Number.POSITIVE_INFINITY
  if (isBad) network.want(plan.perCell)
  hand.send(isBad ? 'check' : 'trust')
  const wanted = network.missing
  const progress = setInterval(() => {
    const bad = isBad ? `, ${wanted - network.missing} of ${wanted} of the network` : ''
    report(`${all - queue.length} of ${all} faults${bad}`)
  }, 10_000)
  const strikeOn = async () => {
    while (queue.length > 0 && nowUs() < deadlineUs) await strikeOne(context, queue.shift())
  }
  const alone = strikes.some(([fault]) => fault === restart || fault === memory)
  await Promise.all(Array.from({ length: alone ? 1 : plan.atOnce }, strikeOn))
  // Some scripts are called by those that start only.
  const enoughUs = Math.min(deadlineUs, nowUs() + 180_000_000)
  while (network.missing > 0 && nowUs() < enoughUs) await strikeOne(context, planned(kill, 1, random, phasesByRole)[0])
  network.forget()
  clearInterval(progress)
}

/** Kills meet routers too, one in five; each phase equally often. */
function planned(fault, times, random, phasesByRole) {
  if (!ofProcesses.has(fault)) return Array.from({ length: times }, () => ({ fault }))
  return Array.from({ length: times }, (_, i) => {
    const role = fault === kill && random.float() < 0.2 ? 'router' : 'worker'
    const all = phasesByRole[role]
    return { fault, role, phase: all[i % all.length] }
  })
}

const mostAttempts = 3

async function strikeOne(context, { fault, role, phase }) {
  const { crew, random, history, plan } = context
  if (!ofProcesses.has(fault)) {
    await fault.strike(context)
    return void (await sleep(300))
  }
  for (let attempt = 1; attempt <= mostAttempts; attempt += 1) {
    const candidates = () => crew.ready.filter((one) => one.role === role && !one.isPicked)
    // Somebody has to be there to go on.
    await until(() => candidates().length > (role === 'worker' ? plan.spared : 0), { timeoutMs: 10_000 })
    const victim = random.pick(candidates())
    if (!victim) continue
    victim.isPicked = true
    const isThere = await reach(victim, phase)
    // Better in another phase than not at all.
    const isLast = attempt === mostAttempts && victim.state === 'ready'
    if (isThere || isLast) await fault.strike(context, victim, phase)
    else letGo(victim)
    victim.isPicked = false
    if (isThere) return
  }
  history.add('missed', { t: nowUs(), fault: fault.name, phase })
}
