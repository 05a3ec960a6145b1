/**
 * Processes that must not outlive this one, however it ends.
 *
 * A shell waits on a pipe that only this process holds. Its end without a word means that this process is gone, also by
 * SIGKILL: then the shell kills the guarded process, also a stopped one, and removes its folder.
 */
import { spawn } from 'node:child_process'

const watch = 'read -r released || { kill -9 "$0"; [ -z "$1" ] || rm -rf "$1"; }'

/** Answers how to let go of it, to be called once it has exited. */
export function guard(pid, folder = '') {
  const shell = spawn('sh', ['-c', watch, String(pid), folder], { stdio: ['pipe', 'ignore', 'ignore'], detached: true })
  shell.stdin.on('error', () => {})
  shell.unref()
  shell.stdin.unref?.()
  return () => shell.stdin.end('released\n')
}
