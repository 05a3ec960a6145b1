/**
 * Faults that strike one worker, which stands in the wanted phase when they come.
 *
 * Each takes the run, the victim and the phase, and answers when the fault itself is over; whether the group has got over
 * it is for the nemesis to see.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { nowUs } from '../harness/clock.mjs'
import { done, phasesOf } from '../harness/phases.mjs'

/** SIGKILL. A commit that was on its way arrives, is lost, or arrives when its sender is long forgotten. */
export const kill = {
  name: 'kill -9',
  async strike({ crew, history, random, plan }, victim, phase) {
    const fate = random.pick(['arrives', 'is lost', 'arrives late'])
    const fact = { worker: victim.name, fault: kill.name, ...struck(victim, phase), held: [...victim.held.keys()] }
    victim.actor.kill('SIGKILL')
    const t = nowUs()
    history.add('fault', { t, until: t, ...fact })
    if (fate === 'arrives') victim.commit?.pass()
    if (fate === 'is lost') victim.commit?.drop()
    await victim.actor.exited
    void crew.hire()
    // Past the expiry another one has the partition: the commit of the dead must change nothing then.
    if (fate === 'arrives late' && victim.commit) {
      await sleep(plan.expiryMs * 1.5)
      victim.commit.pass()
      await sleep(100)
    }
    done(victim)
  },
}

/** SIGSTOP past the expiry, then SIGCONT: it wakes up in the belief that no time has passed. */
export const stop = {
  name: 'SIGSTOP',
  async strike({ history, random, plan }, victim, phase) {
    const late = random.float() < 0.5
    const fact = { worker: victim.name, fault: stop.name, ...struck(victim, phase) }
    victim.actor.kill('SIGSTOP')
    const heal = history.begin({ t: nowUs(), ...fact })
    if (!late) victim.commit?.pass()
    await sleep(plan.expiryMs * (1.3 + 0.7 * random.float()))
    if (late) victim.commit?.pass()
    victim.actor.kill('SIGCONT')
    heal(nowUs())
    done(victim)
  },
}

/** A busy loop past the expiry: timers, sockets and heartbeats wait. */
export const block = {
  name: 'blocked loop',
  /** It begins with it by itself where it stands. */
  blockMs: ({ plan, random }) => Math.round(plan.expiryMs * (1.3 + 0.7 * random.float())),
  async strike({ history, random }, victim, phase, blockMs) {
    const late = random.float() < 0.5
    const fact = { worker: victim.name, fault: block.name, ...struck(victim, phase) }
    if (phase === 'commit') victim.actor.send(`block ${blockMs}`)
    const heal = history.begin({ t: phase === 'commit' ? nowUs() : victim.standingSince, ...fact })
    if (!late) victim.commit?.pass()
    await sleep(blockMs)
    if (late) victim.commit?.pass()
    heal(nowUs())
    done(victim)
  },
}

function struck(victim, aimed) {
  const found = phasesOf(victim, aimed)
  return { aimed, phase: found[0], phases: found }
}
