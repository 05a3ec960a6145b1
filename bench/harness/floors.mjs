/**
 * Floors: what a peer must reach for the run to count, as a share of `redis-benchmark -P 64 XADD` in the same run.
 * A peer below its floor is set up wrong, or the machine is busy with something else; either way the ratios mean nothing.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { dataBytes } from './events.mjs'
import { findProgram } from './servers.mjs'

export const floors = {
  bullmqAdd: 0.025,
  bullmqProcess: 0.012,
  bullmqAddAndProcess: 0.009,
  bullmqFanOut: 0.0015,
  bullmqIdle: 0.0012,
  bullmqWebhook: 0.004,
  beeSave: 0.07,
  beeProcess: 0.017,
  groupmqAdd: 0.02,
  groupmqProcess: 0.019,
  natsPublish: 0.02,
  natsConsume: 0.07,
}

/** XADDs a second that this machine's Redis takes from a C client with pipelining. */
export async function measureYardstick({ host, port, requests }) {
  const program = findProgram('redis-benchmark', 'valkey-benchmark')
  if (!program) throw new Error('redis-benchmark is not installed (Debian: redis-tools)')
  const command = ['XADD', 'bench:stream', '*', 'f', 'x'.repeat(dataBytes)]
  const args = ['-h', host, '-p', String(port), '-P', '64', '-n', String(requests), '-q', ...command]
  const { stdout } = await promisify(execFile)(program, args)
  const rates = [...stdout.matchAll(/([\d.]+) requests per second/g)]
  if (rates.length === 0) throw new Error(`redis-benchmark printed no rate: ${stdout}`)
  return Number(rates.at(-1)[1])
}
