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
 *   stopped  { moved }                                  Redis was away under members that all lived; who moved
 *   joined, left { worker }                             a worker was ready; was asked to go
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
    close() {
      flush()
      if (fd !== undefined) closeSync(fd)
    },
  }
}
