/** A real process of actors/: its lines come in one by one, words can be sent to its stdin, and it ends with this process. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { guard } from './guard.mjs'

const alive = new Set()

export function startActor(file, args, onLine) {
  const path = fileURLToPath(new URL(`../actors/${file}`, import.meta.url))
  const child = spawn(process.execPath, [path, ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
  const release = guard(child.pid)
  alive.add(child)
  child.stdin.on('error', () => {})
  createInterface({ input: child.stdout }).on('line', (line) => onLine(line.split(' ')))
  // 'close', not 'exit': by then everything that it printed has been read.
  const exited = new Promise((resolve) => child.once('close', (code, signal) => resolve({ code, signal })))
  exited.then(() => {
    alive.delete(child)
    release()
  })
  return {
    exited,
    send: (line) => void child.stdin.write(`${line}\n`),
    kill: (signal) => void child.kill(signal),
  }
}

/** Synchronous, so that it also works in an exit handler. */
export function endActors() {
  for (const child of alive) child.kill('SIGKILL')
}
