/**
 * Starts worker processes and brings back what they report. Every child is remembered until it has ended, so that
 * `endChildren` leaves none behind, whatever went wrong.
 */
import { fork } from 'node:child_process'

const workerFile = new URL('./worker.mjs', import.meta.url)
const workloadsFolder = new URL('../workloads/', import.meta.url)
const exitGraceMs = 5_000
const running = new Set()

/** Runs a workload from start to end: driven by the sliding window, or, with mode 'work', by itself. */
export async function drive(job, { timeoutMs = 180_000 } = {}) {
  const child = start({ mode: 'drive', ...job })
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs)
  try {
    return await child.outcome
  } finally {
    clearTimeout(timer)
    await ended(child, job.workload)
  }
}

/** Opens a workload and keeps it open while something else is measured. */
export async function hold(job) {
  const child = start({ ...job, mode: 'hold' })
  await Promise.race([child.ready, child.outcome])
  return {
    tell: (word) => child.send(word),
    async stop() {
      child.send('stop')
      const result = await child.outcome
      await ended(child, job.workload)
      return result
    },
    /** Not an error if it has already ended. */
    kill: () => child.kill('SIGKILL'),
  }
}

export function endChildren() {
  for (const child of running) child.kill('SIGKILL')
}

function start(job) {
  const child = fork(workerFile, { serialization: 'advanced', stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  running.add(child)
  child.exited = new Promise((resolve) => child.once('exit', resolve))
  child.exited.then(() => running.delete(child))
  child.ready = new Promise((resolve) => {
    child.on('message', (message) => message.kind === 'ready' && resolve())
  })
  child.outcome = new Promise((resolve, reject) => {
    child.on('message', (message) => {
      if (message.kind === 'done') resolve(message.result)
      if (message.kind === 'failed') reject(failure(job.workload, message.error))
    })
    child.once('exit', (code, signal) => reject(new Error(`${job.workload} ended early (${signal ?? `exit ${code}`})`)))
  })
  child.outcome.catch(() => {})
  child.send({ ...job, workload: new URL(job.workload, workloadsFolder).href })
  return child
}

/** The first line says what failed; the stack is for whoever looks at the cause. */
function failure(workload, stack) {
  return new Error(`${workload}: ${stack.split('\n', 1)[0]}`, { cause: stack })
}

async function ended(child, name) {
  const timer = setTimeout(() => {
    console.error(`  warning: ${name} closed but its process stays alive; a handle is left open`)
    child.kill('SIGKILL')
  }, exitGraceMs)
  await child.exited
  clearTimeout(timer)
}
