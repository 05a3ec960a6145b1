/**
 * Brings a worker into a phase and keeps it there while it is struck.
 *
 * The worker stands still by itself in four of the five; in the fifth its commit waits in the proxy. Which phases it was in
 * is decided afterwards, from what it had said before it was struck: it may hold several partitions, each at another point.
 */
import { until } from './clock.mjs'

export const phases = ['idle', 'read', 'handler', 'ended', 'commit']
export const phaseTitles = {
  idle: 'idle',
  read: 'read, not begun',
  handler: 'in handler',
  ended: 'ended, not committed',
  commit: 'in commit',
}

const standMs = 600 // with the heartbeat before it still well within the expiry: standing alone costs nobody a partition

/** Answers whether it is there; then `worker.commit` says what can be done with a commit that waits. */
export async function reach(worker, phase, { timeoutMs, blockMs = 0 }) {
  worker.standing = undefined
  if (phase === 'commit') {
    worker.holdsCommit = true
    worker.proxy.holdNextCommit().then((commit) => {
      worker.commit = commit
      worker.standing = phase
    })
  } else worker.actor.send(`arm ${phase} ${standMs} ${blockMs}`)
  const isThere = await until(() => worker.standing === phase || worker.state === 'gone', { timeoutMs, everyMs: 1 })
  if (isThere && worker.state !== 'gone') return true
  letGo(worker)
  return false
}

/** It was not struck after all, or is to go on. */
export function letGo(worker) {
  worker.proxy.forgetHold()
  worker.commit?.pass()
  done(worker)
  if (worker.state !== 'gone') worker.actor.send('disarm')
}

export function done(worker) {
  worker.commit = undefined
  worker.holdsCommit = false
  worker.standing = undefined
  if (worker.state === 'gone') worker.proxy.close()
}

/** All phases that it was in; the one that was aimed at first. */
export function phasesOf(worker, aimed) {
  const found = new Set()
  if (worker.commit || worker.proxy.isCommitting) found.add('commit')
  if (worker.inHand.size > 0) found.add('handler')
  if (worker.standing === 'read' || worker.standing === 'ended') found.add(worker.standing)
  if (found.size === 0) found.add('idle')
  return found.has(aimed) ? [aimed, ...[...found].filter((phase) => phase !== aimed)] : [...found]
}
