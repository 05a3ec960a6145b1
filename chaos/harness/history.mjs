/**
 * What happened, kept outside Redis and outside every process that may be harmed: a list of facts with the time of the one
 * clock, optionally also written to a file, one JSON object per line.
 *
 *   acked    { key, n, partition, seq }                 a publish was answered
 *   began    { worker, partition, seq, epoch, key, n }  a handler was given the event
 *   ended    { worker, partition, seq, epoch }          a handler was through with it
 *   gained   { worker, partition, epoch, cursor }       lost, stale: likewise, without a cursor; lost says why
 *   commit   { worker, partition, epoch, cursor, answeredAt, word }   passed on to Redis at t
 *   sample   { partition, cursor, epoch, owner, answeredAt }          what Redis had, asked at t
 *   fault    { fault, phase, phases, worker, until }    from t until then; without a worker it hit Redis
 *   healed   { fault, worker }                          it is over: its fact has this time as its end
 *   stopped  { moved }                                  Redis was away under members that all lived; who moved
 *   joined, left { worker }                             a worker was ready; was asked to go
 *   unstarted { worker, code }                          a worker ended before it was ready: Redis went away under it
 *   crashed, stalled, uneven, missed                    what should not have happened, or could not be done
 *
 * A queues run has those of faults and workers, what its proxies saw (queue-facts.mjs), and:
 *
 *   acked, refused { type, tenant, n, key, id or code } a publish was answered; sent, unsent: likewise, straight into a queue
 *   began    { worker, queue, id, attempt, tenant, n }  a handler was given the item
 *   ended    { worker, queue, id, how }                 a handler was through with it: done, failed or retry
 *   network  { script, fault, worker }                  what became of a call
 *   late     { worker, until }                          a process, without a worker the harness, had no time from t until then
 *   clock    { offsetUs }                               the server's clock, less this one
 *   store    { queue, entered, out, … }                 counts of a queue in a quiet moment; dead: its letters in the end
 *   fsck     { findings }                               drained: without memory; fair: of all claims; left: in the end
 *   snapshot { queue, now, counted, tenants, line, leases }   a store at one moment, µs by the server: what it counts as held, in all
 *            and per tenant; tenant → number in line; token → [id, tenant] of what it holds
 *
 * A webhooks run has those of faults, publishing, clock and rest, what its proxies saw (webhook-facts.mjs), and:
 *
 *   got      { request, port, hook, batch, hash, ids }  a receiver has a whole request; port: of its sender's connection
 *   answered { request, how }                           a status, or hang, reset, drip, trickle; closed: its connection ended
 *   dialled  { worker, port }                           a dispatcher has a connection to a receiver
 *   store    { hook, entered, delivered, dead, … }      counts of a webhook in a quiet moment
 *   letters  { hook, ids }                              events among its dead letters in the end; discarded: given up by hand
 */
import { closeSync, openSync, writeSync } from 'node:fs'

const bufferBytes = 1 << 16

export function createHistory(file) {
  const facts = []
  const fd = file === undefined ? undefined : openSync(file, 'w')
  let text = ''
  const flush = () => {
    if (fd !== undefined && text !== '') writeSync(fd, text)
    text = ''
  }
  return {
    facts,
    add(kind, fact) {
      const whole = { kind, ...fact }
      facts.push(whole)
      if (fd === undefined) return whole
      text += `${JSON.stringify(whole)}\n`
      if (text.length > bufferBytes) flush()
      return whole
    },
    /** A fault that began and is not over yet; answers how to end it. */
    begin(fault) {
      const fact = this.add('fault', { until: Number.POSITIVE_INFINITY, ...fault })
      return (t) => {
        fact.until = t
        this.add('healed', { t, fault: fact.fault, worker: fact.worker })
        return fact
      }
    },
    close() {
      flush()
      if (fd !== undefined) closeSync(fd)
    },
  }
}
